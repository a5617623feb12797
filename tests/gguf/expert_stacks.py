"""Experts of models in Hugging Face format as llama.cpp's converter writes them: of each layer three stacks."""

from __future__ import annotations

from typing import Any

import numpy as np

MERGED = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}


def stacked(tensors: dict[str, np.ndarray], config: dict[str, Any]) -> dict[str, np.ndarray]:
    """Experts as llama.cpp has them: of each layer three stacks of matrices."""
    match config["model_type"]:
        case "mixtral":
            return each_a_stack(tensors, "block_sparse_moe.experts", ("w1", "w2", "w3"))
        case "qwen3_moe" | "qwen2_moe" | "olmoe" | "glm4_moe":
            return each_a_stack(tensors, "mlp.experts", ("gate_proj", "down_proj", "up_proj"))
        case "lfm2_moe":
            return each_a_stack(tensors, "feed_forward.experts", ("w1", "w2", "w3"))
        case "granitemoe" | "granitemoeshared":
            return in_halves(tensors)
        case "gpt_oss":
            return in_turns(tensors)
    return tensors


def each_a_stack(tensors: dict[str, np.ndarray], block: str, matrices: tuple[str, ...]) -> dict[str, np.ndarray]:
    found = {name: numbers for name, numbers in tensors.items() if f".{block}." not in name}
    layers = {name.split(".")[2] for name in tensors if f".{block}." in name}
    for layer in sorted(layers, key=int):
        for matrix in matrices:
            prefix = f"model.layers.{layer}.{block}"
            count = sum(name.startswith(f"{prefix}.") and name.endswith(f".{matrix}.weight") for name in tensors)
            every = [tensors[f"{prefix}.{expert}.{matrix}.weight"] for expert in range(count)]
            found[f"model.layers.{layer}.mlp.experts.{MERGED.get(matrix, matrix)}.weight"] = np.stack(every)
    return found


def in_halves(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for name, numbers in tensors.items():
        if name.endswith("input_linear.weight"):
            gate, up = np.split(numbers, 2, axis=-2)
            found[name.replace("input_linear", "input_linear.gate")] = gate
            found[name.replace("input_linear", "input_linear.up")] = up
        else:
            found[name] = numbers
    return {renamed(name): numbers for name, numbers in found.items()}


def renamed(name: str) -> str:
    for theirs, merged in (("input_linear.gate", "gate_proj"), ("input_linear.up", "up_proj")):
        name = name.replace(f"block_sparse_moe.{theirs}", f"mlp.experts.{merged}")
        name = name.replace(f"shared_mlp.{theirs}", f"mlp.shared_expert.{merged}")
    return name.replace("block_sparse_moe.output_linear", "mlp.experts.down_proj")


def in_turns(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """gpt-oss: rows of gates and ups alternate, and matrices are [in, out]."""
    found = {}
    for name, numbers in tensors.items():
        if ".experts." not in name:
            found[name] = numbers
            continue
        stem = name.removesuffix("_bias")
        kind = "bias" if name.endswith("_bias") else "weight"
        turned = numbers if kind == "bias" else numbers.swapaxes(1, 2)
        if stem.endswith("gate_up_proj"):
            found[f"{stem.replace('gate_up', 'gate')}.{kind}"] = turned[:, 0::2]
            found[f"{stem.replace('gate_up', 'up')}.{kind}"] = turned[:, 1::2]
        else:
            found[f"{stem}.{kind}"] = turned
    return found
