"""Random adapters of models with experts, written without PEFT, and checkpoints that have an adapter merged by hand."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from safetensors.torch import load_file, save_file

from specserve.models.read_config import read_config
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import linear_shapes, tensors_of, write_adapter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from torch import Tensor

MODELS: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"num_hidden_layers": 3, "mlp_only_layers": [1]},
    "olmoe": {"intermediate_size": 112},
    "granitemoe": {"intermediate_size": 96},
    "mixtral": {"intermediate_size": 80, "num_local_experts": 5},
    "gpt_oss": {"intermediate_size": 96},
    "lfm2_moe": {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"]},
    "qwen3_5_moe_text": {},
    "qwen2_moe": {"num_hidden_layers": 3, "mlp_only_layers": [1]},
    "granitemoeshared": {"intermediate_size": 96, "shared_intermediate_size": 72},
    "glm4_moe": {"num_hidden_layers": 3},
    "gemma4_text": {
        "enable_moe_block": True,
        "num_experts": 6,
        "top_k_experts": 2,
        "moe_intermediate_size": 48,
        "attention_k_eq_v": True,
        "num_global_key_value_heads": 1,
    },
}
"""By architecture, what differs from its toy."""
BLOCKS = {**dict.fromkeys(("granitemoe", "granitemoeshared"), "block_sparse_moe"), "lfm2_moe": "feed_forward"}
"""What holds the experts in transformers 5, where that is not `mlp`."""
WITHOUT_BLOCK = ("gemma4_text",)
"""Whose layers hold their experts themselves."""
OF_MIXTRAL = {
    "gate_proj": "w1",
    "up_proj": "w3",
    "down_proj": "w2",
    "mlp.experts": "block_sparse_moe.experts",
    "mlp.gate": "block_sparse_moe.gate",
}
"""Its own names."""


def write_model(path: Path, architecture: str) -> Path:
    return write_checkpoint(path, architecture=architecture, **MODELS[architecture])


def write_per_expert(path: Path, model: Path, *, seed: int = 0, size: float = 0.5, **config: Any) -> Path:
    """An adapter of all modules of attention, experts and routers, as transformers 4 has them."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "gate"]
    if read_config(model).family == "mixtral":
        shapes = {in_words_of_mixtral(name): shape for name, shape in linear_shapes(model).items()}
        named = sorted({name.rpartition(".")[2] for name in shapes})
        config = {
            "target_modules": named,
            "tensors": tensors_of(shapes, config.get("rank", 4), seed=seed, size=size),
        } | config
    return write_adapter(path, model, targets=targets, seed=seed, size=size, **config)


def in_words_of_mixtral(name: str) -> str:
    for ours, theirs in OF_MIXTRAL.items():
        name = name.replace(ours, theirs)
    return name


def stacked_shapes(
    model: Path, parameters: Iterable[str] = ("gate_up_proj", "down_proj")
) -> dict[str, tuple[int, int]]:
    """(out, in) of one expert by the stem of its layer's tensors, where the adapter has these parameters."""
    config, parameters = read_config(model), tuple(parameters)
    experts, hidden = config.experts, config.hidden_size
    assert experts is not None
    sizes = {"gate_up_proj": (2 * experts.inner_size, hidden), "down_proj": (hidden, experts.inner_size)}
    inner = len(parameters) > 1
    block = "" if config.family in WITHOUT_BLOCK else f"{BLOCKS.get(config.family, 'mlp')}."
    return {
        f"model.layers.{layer}.{block}experts" + ".base_layer" * (inner and parameter == "gate_up_proj"): sizes[
            parameter
        ]
        for layer in range(config.num_layers)
        if experts.layers[layer]
        for parameter in parameters
    }


def write_stacked(
    path: Path, model: Path, *, rank: int = 4, seed: int = 0, parameters: Iterable[str] = (), **config: Any
) -> Path:
    """An adapter of parameters that hold all experts of a layer, both by default, as transformers 5 has them."""
    experts = read_config(model).experts
    assert experts is not None
    wanted = tuple(parameters) or ("gate_up_proj", "down_proj")
    shapes = stacked_shapes(model, wanted)
    tensors = tensors_of(shapes, rank * experts.count, seed=seed, size=0.5 * experts.count**0.5)
    raw: dict[str, Any] = {"target_modules": [], "target_parameters": [f"experts.{name}" for name in wanted]}
    return write_adapter(path, model, rank=rank, **({"tensors": tensors} | raw | config))


def merged_checkpoint(path: Path, model: Path, adapter: Path) -> Path:
    """The checkpoint with scaling * up @ down added to each of its own tensors that the adapter names."""
    shutil.copytree(model, path)
    raw = json.loads((adapter / "adapter_config.json").read_text())
    weights = load_file(path / "model.safetensors")
    pairs = load_file(adapter / "adapter_model.safetensors")
    for name, down in pairs.items():
        if name.endswith(".lora_A.weight"):
            stem = name.removesuffix(".lora_A.weight")
            weight = weights[stem.removeprefix("base_model.model.") + ".weight"]
            weight += raw["lora_alpha"] / raw["r"] * product(down, pairs[f"{stem}.lora_B.weight"], weight)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def product(down: Tensor, up: Tensor, weight: Tensor) -> Tensor:
    """up @ down of a matrix, or of each matrix of a stack: rows of down by matrix, columns of up by rank."""
    if weight.dim() == 2:
        return up @ down
    result, count = weight.new_empty(weight.shape), len(weight)
    rank = len(down) // count
    for each in range(count):
        columns = [of_rank * count + each for of_rank in range(rank)]
        result[each] = up[:, columns] @ down[each * rank : (each + 1) * rank]
    return result


def renamed(tensors: Mapping[str, Tensor], words: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors with words of their names replaced."""
    found = {}
    for name, tensor in tensors.items():
        for ours, theirs in words.items():
            name = name.replace(ours, theirs)
        found[name] = tensor
    return found
