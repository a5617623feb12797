"""Checkpoints of GPTQ, AWQ and compressed-tensors, written from others by the definition of each layout, without the
packages that write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight outputs is at each place of a word, from its lowest bits on."""


class Form(NamedTuple):
    """A layout and what it says of numbers."""

    method: str
    """gptq, gptq_v2, awq or pack-quantized."""
    bits: int = 4
    group_size: int = 32
    """-1: all inputs of an output."""
    symmetric: bool = False
    ordered: bool = False
    """Whether the groups are of inputs anywhere in the row."""
    scales: torch.dtype = torch.float16


class Numbers(NamedTuple):
    """A weight: scale * (integer - zero point)."""

    integers: Tensor
    """[out, in] int64, from 0 to 2 ** bits - 1"""
    zeros: Tensor
    """[out, groups] int64, in the same range"""
    scales: Tensor
    """[out, groups]"""
    group_of: Tensor
    """[in] int64: the group of each input"""

    def weight(self) -> Tensor:
        """[out, in] float32"""
        return self.scales.float()[:, self.group_of] * (self.integers - self.zeros[:, self.group_of])


def quantise(weight: Tensor, form: Form, seed: int = 0) -> Numbers:
    outs, ins = weight.shape
    size = ins if form.group_size < 0 else form.group_size
    group_of = torch.arange(ins) // size
    if form.ordered:
        group_of = group_of[torch.randperm(ins, generator=torch.Generator().manual_seed(seed))]
    largest, groups = 2**form.bits - 1, range(-(-ins // size))
    parts = [weight.float()[:, group_of == group] for group in groups]
    low = torch.stack([part.amin(1).clamp(max=0) for part in parts], 1)
    high = torch.stack([part.amax(1).clamp(min=0) for part in parts], 1)
    if form.symmetric:
        low = -torch.maximum(-low, high)
        high = -low
    scales = ((high - low) / largest).clamp(min=1e-6).to(form.scales)
    middle = torch.full((outs, len(groups)), 2 ** (form.bits - 1))
    zeros = middle if form.symmetric else (-low / scales.float()).round().clamp(0, largest).long()
    integers = (weight.float() / scales.float()[:, group_of]).round().long() + zeros[:, group_of]
    return Numbers(integers.clamp(0, largest), zeros, scales, group_of)


def words(integers: Tensor, bits: int) -> Tensor:
    """integers: [rows, n] -> [rows, n * bits / 32] int32, the first in the lowest bits; the last word is filled up."""
    per_word = 32 // bits
    padded = torch.nn.functional.pad(integers, (0, -integers.shape[1] % per_word))
    places = padded.unflatten(1, (-1, per_word)) << (torch.arange(per_word) * bits)
    total = places.sum(-1)
    return torch.where(total >= 2**31, total - 2**32, total).int()


def awq_words(integers: Tensor) -> Tensor:
    """integers: [n, out] -> [n, out / 8] int32"""
    return words(integers.unflatten(1, (-1, 8))[:, :, AWQ_ORDER].flatten(1), 4)


def stored(numbers: Numbers, form: Form) -> dict[str, Tensor]:
    """The tensors of the layout, by the last part of their names."""
    integers, zeros, scales, group_of = numbers
    if form.method == "awq":
        own = {} if form.symmetric else {"qzeros": awq_words(zeros.t())}
        return {"qweight": awq_words(integers.t()), "scales": scales.t(), **own}
    if form.method == "pack-quantized":
        own = {} if form.symmetric else {"weight_zero_point": words(zeros.t(), form.bits).t()}
        own |= {"weight_g_idx": group_of.int()} if form.ordered else {}
        shape = torch.tensor(integers.shape)
        return {"weight_packed": words(integers, form.bits), "weight_shape": shape, "weight_scale": scales, **own}
    one_less = (zeros - (1 if form.method == "gptq" else 0)) % 2**form.bits
    return {
        "qweight": words(integers, form.bits).t(),
        "qzeros": words(one_less.t(), form.bits),
        "scales": scales.t(),
        "g_idx": group_of.int(),
    }


def settings(form: Form) -> dict[str, Any]:
    """`quantization_config`."""
    if form.method == "awq":
        size = {"bits": 4, "group_size": form.group_size, "version": "gemm"}
        return size | {"quant_method": "awq", "zero_point": not form.symmetric, "modules_to_not_convert": None}
    if form.method == "pack-quantized":
        group = {"strategy": "group", "group_size": form.group_size}
        args = {"num_bits": form.bits, "type": "int", "symmetric": form.symmetric, "dynamic": False}
        args |= {"actorder": "group" if form.ordered else None}
        args |= group if form.group_size > 0 else {"strategy": "channel", "group_size": None}
        groups = {"group_0": {"targets": ["Linear"], "weights": args, "input_activations": None}}
        return {"quant_method": "compressed-tensors", "format": form.method, "config_groups": groups}
    own = {"bits": form.bits, "group_size": form.group_size, "sym": form.symmetric, "desc_act": form.ordered}
    return own | {"quant_method": "gptq", "checkpoint_format": form.method, "damp_percent": 0.01, "dynamic": None}


def quantised_tensors(
    tensors: dict[str, Tensor], form: Form, leave: tuple[str, ...]
) -> tuple[dict[str, Tensor], dict[str, Numbers]]:
    """A checkpoint's tensors, and the numbers of those linear maps that are quantised now. `leave`: parts of the names
    of those that are not."""
    numbers: dict[str, Numbers] = {}
    changed = dict(tensors)
    for number, (name, tensor) in enumerate(tensors.items()):
        stem = name.removesuffix(".weight")
        if tensor.dim() != 2 or stem == name or "embed" in name or any(part in name for part in leave):
            continue
        numbers[stem] = quantise(tensor, form, number)
        del changed[name]
        changed |= {f"{stem}.{part}": each for part, each in stored(numbers[stem], form).items()}
    return changed, numbers


class Written(NamedTuple):
    path: Path
    plain: Path
    """A directory with the same numbers in float32."""
    numbers: dict[str, Numbers]
    """By the name of the linear map."""


def write_affine(source: Path, out: Path, form: Form, leave: tuple[str, ...] = ("lm_head", "mlp.gate.")) -> Written:
    """source: a checkpoint in one file."""
    plain, tensors = out.with_name(f"{out.name}-plain"), load_file(source / "model.safetensors")
    theirs, numbers = quantised_tensors(tensors, form, leave)
    ours = {name: tensor.float() for name, tensor in tensors.items()}
    ours |= {f"{stem}.weight": each.weight() for stem, each in numbers.items()}
    config = json.loads((source / "config.json").read_text())
    for path, written, more in (
        (plain, ours, {"torch_dtype": "float32"}),
        (out, theirs, {"quantization_config": settings(form)}),
    ):
        path.mkdir()
        for file in source.iterdir():
            (path / file.name).write_bytes(file.read_bytes())
        (path / "config.json").write_text(json.dumps(config | more))
        save_file({name: tensor.contiguous() for name, tensor in written.items()}, path / "model.safetensors")
    return Written(out, plain, numbers)
