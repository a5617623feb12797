"""Checkpoints with 8-bit weights in the format of compressed-tensors, written from others without its package."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


def quantised(weight: Tensor, group_size: int | None) -> tuple[Tensor, Tensor]:
    """Integers [out, in] and scales [out, groups], both float32."""
    groups = weight.float().split(group_size or weight.shape[1], 1)
    scales = [group.abs().amax(1, keepdim=True) / 127 for group in groups]
    return torch.cat([(g / s).round() for g, s in zip(groups, scales, strict=True)], 1), torch.cat(scales, 1)


def packed(integers: Tensor) -> Tensor:
    """Four integers in an int32, the first in its lowest byte, with 128 added."""
    outs, ins = integers.shape
    columns = torch.zeros(outs, -(-ins // 4) * 4, dtype=torch.int64)
    columns[:, :ins] = integers.long() + 128
    words = (columns.view(outs, -1, 4) << torch.tensor([0, 8, 16, 24])).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()


DYNAMIC = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token", "group_size": None}
"""`input_activations` of preset W8A8."""


def config_of(
    kind: str, group_size: int | None, activations: dict[str, Any] | None = None, **weights: Any
) -> dict[str, Any]:
    """The `quantization_config` of preset W8A16, or W8A8; `weights` overrides what it says of weights."""
    strategy = {"strategy": "group", "group_size": group_size} if group_size else {"strategy": "channel"}
    args = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": False, "actorder": None} | strategy | weights
    group = {"targets": ["Linear"], "weights": args, "input_activations": activations, "output_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": kind,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
    }


def write_compressed(
    source: Path,
    out: Path,
    *,
    kind: str = "pack-quantized",
    group_size: int | None = None,
    leave: tuple[str, ...] = ("lm_head",),
    dense: bool = False,
    scale_dtype: torch.dtype = torch.float32,
    activations: dict[str, Any] | None = None,
) -> Path:
    """source: a checkpoint in one file. `leave`: parts of the names of linear maps that are not quantised. dense: the
    weights that the integers stand for, unquantised and in float32, instead."""
    out.mkdir()
    for file in source.iterdir():
        (out / file.name).write_bytes(file.read_bytes())
    config = json.loads((out / "config.json").read_text())
    tensors = dict(load_file(source / "model.safetensors"))
    for name, weight in list(tensors.items()):
        stem = name.removesuffix(".weight")
        if weight.dim() != 2 or "embed" in name or any(part in name for part in leave):
            continue
        integers, scales = quantised(weight, group_size)
        scales = scales.to(scale_dtype)
        if dense:
            size = group_size or weight.shape[1]
            every = scales.float().repeat_interleave(size, 1)[:, : weight.shape[1]]
            tensors[name] = integers * every
            continue
        tensors[f"{stem}.weight_scale"] = scales
        if kind == "int-quantized":
            tensors[name] = integers.to(torch.int8)
        else:
            del tensors[name]
            tensors[f"{stem}.weight_packed"] = packed(integers)
            tensors[f"{stem}.weight_shape"] = torch.tensor(weight.shape)
    if dense:
        config |= {"torch_dtype": "float32"}
        tensors = {name: tensor.float() for name, tensor in tensors.items()}
    else:
        config["quantization_config"] = config_of(kind, group_size, activations)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config))
    return out
