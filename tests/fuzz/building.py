"""Builds engines from plans: the one under test with all its plugins, and the plain one that requests are alone on."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fuzz.block_heads import BLOCK
from fuzz.parts.plugins import OWN_DRAFTERS, drafter_plugins, observer_plugin, planner_plugin, processor_plugin
from fuzz.plans import changed
from fuzz.small_heads import SMALL_HEAD
from specserve.config import EngineConfig
from specserve.engine.assembly import Assembled, assemble
from specserve.kv.cache import KVCache
from specserve.kv.slots import num_blocks_for
from specserve.models.read_config import read_config
from specserve.plugins.host import PluginHost
from specserve_cpu._native import instruction_sets
from specserve_eagle.options import EagleOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fuzz.parts.guessing import Oracle
    from fuzz.parts.processing import Processor
    from fuzz.plans import EnginePlan, ModelPlan
    from specserve.models.config import ModelConfig

REFERENCE_BLOCK_SIZE = 16
KV_EVENTS = {"endpoint": "tcp://127.0.0.1:*", "buffer": 1_000_000}
"""All batches are kept."""
SYLLABLES = ("the", "he", " ", "an", "xyz", "é", "er")


class Built(NamedTuple):
    assembled: Assembled
    host: PluginHost

    @property
    def engine(self):
        return self.assembled.engine

    @property
    def tokenizer(self):
        return self.assembled.tokenizer


class Files(NamedTuple):
    """What was written for a trial."""

    model: Path
    adapters: Mapping[str, Path]
    """By name; those that are known from the start."""
    corpus: Path | None
    head: Path | None = None
    """A draft head for the model."""
    draft_adapter: Path | None = None
    """Of uno."""


class PluginSetup(NamedTuple):
    names: list[str]
    options: dict[str, dict[str, Any]]
    extra: dict[str, Any]
    """In-process plugins by name."""


def arithmetic_plugins(
    plan: EnginePlan, adapters: Mapping[str, Path], max_loaded: int, processor: Processor | None
) -> PluginSetup:
    """Plugins that are part of what a request gives."""
    setup = PluginSetup(["quantised"], {}, processor_plugin(processor))
    if plan.kernels == "cpu":
        setup.names.append("cpu")
        kept = {"weights": plan.cpu_weights, "activations": plan.cpu_activations, "kv": plan.cpu_kv}
        setup.options["cpu"] = {"instruction_set": instruction_set_of(plan), **kept}
    if plan.hybrid:
        setup.names.append("hybrid_attn")
        setup.options["hybrid_attn"] = dict(plan.hybrid)
    if plan.grammar:
        setup.names.append("grammar")
        setup.options["grammar"] = {"forced_drafts": False}
    if plan.by_transformers:
        setup.names.append("transformers")
        setup.options["transformers"] = {"architectures": "all"}
    if plan.ranks > 1:
        setup.names.append("tensor_parallel")
        setup.options["tensor_parallel"] = {"ranks": plan.ranks}
    if adapters:
        setup.names.append("lora")
        paths = {name: str(path) for name, path in adapters.items()}
        setup.options["lora"] = {"adapters": paths, "max_loaded": max_loaded}
    return setup


def instruction_set_of(plan: EnginePlan) -> str:
    """The plan's, or the fastest where this processor has another."""
    if plan.kernels != "cpu":
        return "of torch"
    fastest = instruction_sets()[0]
    return plan.instruction_set if plan.instruction_set in instruction_sets() else fastest


def build_tested(
    model: ModelPlan,
    plan: EnginePlan,
    files: Files,
    drafters: Mapping[str, Oracle],
    processor: Processor | None,
) -> Built:
    setup = arithmetic_plugins(plan, files.adapters, plan.max_loaded, processor)
    setup.names.extend(name for name in plan.drafters if name not in OWN_DRAFTERS)
    if "ngram" in plan.drafters:
        setup.options["ngram"] = plan.ngram | ({"corpora": {"words": str(files.corpus)}} if files.corpus else {})
    if plan.grammar:
        setup.options["grammar"] = {"forced_drafts": plan.max_draft_tokens > 0}
    if "eagle" in plan.drafters:
        setup.options["eagle"] = {"model": str(files.head or files.model), **plan.eagle}
    if "uno" in plan.drafters:
        setup.options["uno"] = {"adapter": str(files.draft_adapter), **plan.uno}
    if "repeat" in plan.drafters:
        setup.options["repeat"] = {"width": plan.repeat_width}
    if plan.graphs != "none":
        setup.names.append("graphs")
    if plan.kv_events is not None:
        setup.names.append("kv_events")
        setup.options["kv_events"] = KV_EVENTS | plan.kv_events
    if plan.planner == "adaptive" and plan.drafters:
        setup.names.append("adaptive")
        setup.options["adaptive"] = {"cost_cache": "none", **(plan.adaptive if plan.max_draft_tokens else {})}
    setup.extra.update(drafter_plugins(drafters) | planner_plugin(plan) | observer_plugin(plan))
    num_blocks = max(2, math.ceil(plan.room * -(-plan.max_model_len // plan.block_size)))
    return build(
        model,
        files.model,
        setup,
        num_blocks=num_blocks,
        threads=plan.threads,
        max_num_seqs=plan.max_num_seqs,
        max_num_batched_tokens=plan.budget,
        max_model_len=plan.max_model_len,
        block_size=plan.block_size,
        prefix_cache=plan.prefix_cache,
        chunked_prefill=plan.chunked_prefill,
        max_draft_tokens=plan.max_draft_tokens,
        attention=plan.attention,
        graphs=plan.graphs,
        graph_buckets=plan.buckets,
        draft_fault_limit=plan.fault_limit,
        fault_limit=plan.fault_limit,
    )


def build_reference(
    model: ModelPlan,
    plan: EnginePlan,
    path: Path,
    adapters: Mapping[str, Path],
    attention: Mapping[str, Any],
    processor: Processor | None,
) -> Built:
    """The same kernels and attention backends, and nothing else. Native kernels have the same bits with any threads."""
    setup = arithmetic_plugins(changed(plan, hybrid=attention["hybrid"]), adapters, 64, processor)
    return build(
        model,
        path,
        setup,
        num_blocks=-(-plan.max_model_len // REFERENCE_BLOCK_SIZE) + 2,
        threads=1 if plan.kernels == "cpu" else plan.threads,
        max_num_seqs=1,
        max_num_batched_tokens=2 * plan.max_model_len,
        max_model_len=plan.max_model_len,
        block_size=REFERENCE_BLOCK_SIZE,
        prefix_cache=False,
        attention=attention["attention"],
    )


def attention_of(built: Built) -> dict[str, Any]:
    """The backends that serve prompts and answers, as a reference's configuration names them."""
    backend = built.engine.runner.attention
    prompt, generated = (name_of(getattr(backend, phase, backend)) for phase in ("prompt", "generated"))
    if prompt == generated:
        return {"attention": prompt, "hybrid": None}
    return {"attention": "auto", "hybrid": {"prefill": prompt, "decode": generated}}


def name_of(backend: Any) -> str:
    """Of one for heads of several sizes, the name of its parts."""
    name: str = getattr(backend, "backends", (backend,))[0].name
    return name


def build(model: ModelPlan, path: Path, setup: PluginSetup, *, num_blocks: int, **fields: Any) -> Built:
    """`fields` are those of EngineConfig."""
    sizes = read_config(path)
    bytes_per_block = fields["block_size"] * bytes_per_token(sizes, getattr(torch, model.dtype), setup)
    config = EngineConfig(
        model=str(path),
        dtype=model.dtype,
        kv_memory=str(
            num_blocks * bytes_per_block
            + draft_bytes(setup, num_blocks, bytes_per_block, fields)
            + self_draft_bytes(setup, sizes.vocab_size, bytes_per_block, fields)
        ),
        plugins=tuple(setup.names),
        default_plugins=False,
        allow_undeclared=True,
        plugin_options=setup.options,
        **fields,
    )
    host = PluginHost.start(config, setup.extra)
    return Built(assemble(config, host), host)


def bytes_per_token(sizes: ModelConfig, dtype: torch.dtype, setup: PluginSetup) -> int:
    """In the cache."""
    ranks = setup.options.get("tensor_parallel", {}).get("ranks", 1)
    is_int8 = setup.options.get("cpu", {}).get("kv") == "int8"
    beside, kept = (4, torch.int8) if is_int8 else (0, dtype)
    total = sum(sizes.token_widths) * dtype.itemsize
    for layer in map(sizes.attention, sizes.attention_layers):
        num_kv_heads = ranks * max(1, layer.num_kv_heads // ranks)
        total += KVCache.bytes_per_block(1, 1, num_kv_heads, layer.head_dim + beside, kept)
    return total


def draft_bytes(setup: PluginSetup, num_blocks: int, bytes_per_block: int, fields: Mapping[str, Any]) -> int:
    """What eagle takes of the KV memory beside `num_blocks` blocks: as much again, and blocks for draft tokens; with a
    head of its own at most what that has."""
    if "eagle" not in setup.names:
        return 0
    rows = EagleOptions(**setup.options["eagle"]).max_rows
    if (file := Path(setup.options["eagle"]["model"]) / SMALL_HEAD).exists():
        rows, bytes_per_block = max(rows, BLOCK + 1), max(bytes_per_block, int(file.read_text()) * fields["block_size"])
    return (num_blocks + fields["max_num_seqs"] * num_blocks_for(rows, fields["block_size"])) * bytes_per_block


def self_draft_bytes(setup: PluginSetup, vocab_size: int, bytes_per_block: int, fields: Mapping[str, Any]) -> int:
    """What uno takes of the KV memory: blocks for the draft tokens of a pass, and its logits."""
    if "uno" not in setup.names:
        return 0
    rows = min(setup.options["uno"]["draft_tokens"], fields["max_draft_tokens"])
    requests = min(fields["max_num_seqs"], max(1, fields["max_num_batched_tokens"] // max(1, rows)))
    return requests * (num_blocks_for(rows, fields["block_size"]) * bytes_per_block + rows * vocab_size * 4)


def write_corpus(file: Path, seed: int) -> Path:
    rng = random.Random(seed)
    file.write_text("".join(rng.choice(SYLLABLES) for _ in range(2000)), encoding="utf-8")
    return file
