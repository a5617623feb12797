"""Which fields of a config the code of the installed transformers reads, found in its syntax trees."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import transformers

SOURCES = Path(transformers.__file__).parent
FAMILIES = (
    *("llama", "mistral", "qwen2", "qwen3"),
    *("gemma2", "gemma3_text", "granite", "ministral", "ministral3", "olmo2", "olmo3", "phi3", "smollm3"),
    *("gpt_oss", "granitemoe", "mixtral", "olmoe", "qwen3_moe"),
    *("lfm2", "lfm2_moe", "lfm3", "qwen3_5_text"),
    *("qwen3_5_moe_text", "qwen2_moe", "granitemoeshared", "glm4_moe"),
    "gemma4_text",
)
SHARED = ("masking_utils.py", "modeling_rope_utils.py", "cache_utils.py", "modeling_utils.py")
"""Modules that run for every model, beside its own."""
NAMES = ("config", "text_config", "decoder_config")
OF_CLASSES = {"base_model_pp_plan", "base_model_tp_plan", "sub_configs"}
"""Attributes of the classes themselves, which no file sets."""


def class_fields(family: str) -> set[str]:
    """Every field that the family's config class declares, those of its base included."""
    return {field.name for field in fields(transformers.AutoConfig.for_model(family))}


def reads(source: str) -> set[str]:
    """Names read as `config.name` or `getattr(config, "name")` in a module."""
    tree = ast.parse((SOURCES / source).read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = {id(call.func) for call in calls}
    found = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and is_config(node.value)
        and isinstance(node.ctx, ast.Load)
        and id(node) not in methods
    }
    found |= {
        call.args[1].value
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id in ("getattr", "hasattr")
        and is_config(call.args[0])
        and isinstance(call.args[1], ast.Constant)
    }
    return {name for name in found if not name.startswith("_")} - OF_CLASSES


def is_config(node: ast.expr) -> bool:
    """`config`, `self.config` and what is called so elsewhere."""
    return (isinstance(node, ast.Name) and node.id in NAMES) or (isinstance(node, ast.Attribute) and node.attr in NAMES)


def rotary_reads() -> set[str]:
    """Keys of the rotary settings that transformers reads by name."""
    tree = ast.parse((SOURCES / "modeling_rope_utils.py").read_text(encoding="utf-8"))
    keys = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_rotary(node.value) and isinstance(node.slice, ast.Constant):
            keys.add(node.slice.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_rotary(node.func.value):
            keys |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return keys


def is_rotary(node: ast.expr) -> bool:
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return name in ("rope_parameters", "rope_parameters_dict", "rope_scaling")
