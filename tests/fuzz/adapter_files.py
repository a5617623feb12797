"""Writes random adapters as PEFT does: mixed ranks, targets, layers and dtypes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file

from specserve.models.read_config import read_config
from specserve.models.tensor_names import expected_shapes

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.models.config import ModelConfig

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "in_proj", "out_proj", "g_proj")
PARAMETERS = ("gate_up_proj", "down_proj")
TARGETS = (ALL, ("q_proj", "v_proj"), ("o_proj",), ("up_proj",), ("gate_proj", "k_proj", "down_proj"))


def write_adapter(path: Path, model: Path, seed: int) -> Path:
    """The directory of an adapter for the checkpoint in `model`."""
    rng, config = random.Random(seed), read_config(model)
    raw = draw_config(rng, config.num_layers) | draw_experts(rng, config)
    if not adapted_modules(model, raw):  # those layers have none of the targets
        raw.pop("layers_to_transform", None)
    dtype = rng.choice((torch.float32, torch.bfloat16, torch.float16))
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for module, (rows, columns, rank) in {**adapted_modules(model, raw), **adapted_parameters(config, raw)}.items():
        down = torch.randn(rank, columns, generator=generator) / columns**0.5
        up = torch.randn(rows, rank, generator=generator) * 0.7 / rank**0.5
        tensors[f"base_model.model.{module}.lora_A.weight"] = down.to(dtype)
        tensors[f"base_model.model.{module}.lora_B.weight"] = up.to(dtype)
    path.mkdir(parents=True)
    (path / "adapter_config.json").write_text(json.dumps(raw))
    save_file(tensors, path / "adapter_model.safetensors")
    return path


def draw_config(rng: random.Random, num_layers: int) -> dict[str, Any]:
    """adapter_config.json."""
    targets = rng.choice(TARGETS)
    rank = rng.choice((1, 2, 3, 4, 7, 8, 16, 33))
    raw: dict[str, Any] = {
        "peft_type": "LORA",
        "r": rank,
        "lora_alpha": rng.choice((1, rank, 2 * rank, 16)),
        "use_rslora": rng.random() < 0.3,
        "target_modules": list(targets),
        "bias": "none",
    }
    if rng.random() < 0.3:
        raw["rank_pattern"] = {rng.choice(targets): rng.choice((1, 5, 12))}
    if num_layers > 1 and rng.random() < 0.3:
        raw["layers_to_transform"] = [rng.randrange(num_layers)]
    return raw


def draw_experts(rng: random.Random, config: ModelConfig) -> dict[str, Any]:
    """Of adapter_config.json, where the model has experts: as modules they have the names of plain layers."""
    if config.experts is None or rng.random() < 0.4:
        return {}
    return {"target_parameters": rng.choice((PARAMETERS, PARAMETERS[:1], PARAMETERS[1:]))}


def adapted_parameters(config: ModelConfig, raw: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """(out, in, rank of all experts) by the stem of the tensors' names."""
    names, experts = raw.get("target_parameters", ()), config.experts
    if experts is None or not names:
        return {}
    sizes = {"gate_up_proj": (2 * experts.inner_size, config.hidden_size)}
    sizes["down_proj"] = (config.hidden_size, experts.inner_size)
    stacks = {}
    for layer in (index for index, there in enumerate(experts.layers) if there):
        for outer, name in enumerate(reversed(names)):
            stem = f"model.layers.{layer}.mlp.experts{'.base_layer' * outer}"
            stacks[stem] = (*sizes[name], rank_of(raw, name) * experts.count)
    return stacks


def rank_of(raw: dict[str, Any], name: str) -> int:
    rank: int = raw.get("rank_pattern", {}).get(name, raw["r"])
    return rank


def adapted_modules(model: Path, raw: dict[str, Any]) -> dict[str, tuple[int, int, int]]:
    """(out, in, rank) by the path of every module that the adapter changes. No experts where they are parameters."""
    layers = raw.get("layers_to_transform")
    modules = {}
    for name, shape in expected_shapes(read_config(model)).items():
        module, _, last = name.rpartition(".")
        own = module.rpartition(".")[2]
        wanted = last == "weight" and own in raw["target_modules"]
        wanted &= not (".experts." in module and raw.get("target_parameters"))
        if wanted and (layers is None or int(module.split(".")[2]) in layers):
            modules[module] = (*shape, rank_of(raw, own))
    return modules
