"""Writes checkpoints and makes their weights peculiar: logits that tie, tokens that are no numbers, repeated text."""

from __future__ import annotations

import json
import math
import random
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file

from fuzz.quantising import FORMS, quantise_files
from mtp_blocks import random_block
from specserve.models.locate import locate_model
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from fuzz.plans import ModelPlan

KINDS = ("plain", "peaked", "flat", "ties", "poison", "sticky", "sticky", "tiny", "hopeless")
NOT_FINITE = ("poison", "hopeless")
"""Those that have no form of fewer bits."""
WITH_BLOCKS = ("qwen3_5_text",)
"""Families whose checkpoints have a block that drafts."""
EMBEDDING = "model.embed_tokens.weight"


def write_model(plan: ModelPlan, path: Path) -> Path:
    """The directory of the model."""
    if plan.is_demo:
        return locate_model("demo")
    write_checkpoint(path, architecture=plan.family, seed=plan.seed, dtype=plan.stored, **plan.config)
    if plan.eos is not None:
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": list(plan.eos)}))
    file = path / "model.safetensors"
    tensors = load_file(file)
    change(plan, tensors)
    if plan.family in WITH_BLOCKS:
        block = random_block(json.loads((path / "config.json").read_text()), plan.seed)
        tensors |= {name: tensor.to(tensors[EMBEDDING].dtype) for name, tensor in block.items()}
    save_file(tensors, file, metadata={"format": "pt"})
    if plan.quantised is not None:
        quantise_files(path, FORMS[plan.quantised])
    return path


def change(plan: ModelPlan, tensors: dict[str, torch.Tensor]) -> None:
    head = "lm_head.weight" if "lm_head.weight" in tensors else EMBEDDING
    weight, embedding = tensors[head], tensors[EMBEDDING]
    match plan.weights:
        case "peaked":
            tensors[head] = weight * 30
        case "flat":
            tensors[head] = weight * (0.0 if plan.seed % 2 else 1e-4)
        case "ties":  # many tokens have exactly the same logits
            tensors[head] = weight[torch.arange(len(weight)) % 13].clone()
        case "sticky":  # few tokens are likely, so text repeats itself
            few = torch.randperm(len(weight), generator=torch.Generator().manual_seed(plan.seed))[:12]
            tensors[head] = weight.clone()
            tensors[head][few] *= 3
        case "tiny":  # numbers below the smallest normal one
            scale = 1e-6 if plan.stored == "float16" else 1e-39
            tensors[EMBEDDING] = (embedding.double() * scale).to(embedding.dtype)
        case "poison":
            for token, value in poisoned(plan).items():
                embedding[token] = value
        case "hopeless":
            value = (math.nan, math.inf, largest(plan.stored))[plan.seed % 3]
            for name in tensors:
                tensors[name] = torch.full_like(tensors[name], value)


def poisoned(plan: ModelPlan) -> dict[int, float]:
    """Tokens whose embedding is no number, or nearly none."""
    if plan.weights != "poison":
        return {}
    values = (math.nan, math.inf, -math.inf, largest(plan.stored), largest(plan.stored) ** 0.5)
    return dict(zip(random.Random(plan.seed).sample(range(300), len(values)), values, strict=True))


def largest(dtype: str) -> float:
    return torch.finfo(getattr(torch, dtype)).max
