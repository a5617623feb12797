"""Random weights of few bits, of every form that kernels keep them in."""

from __future__ import annotations

from typing import NamedTuple

import torch

from specserve.protocols.quantised import Activations, Factors, QuantisedWeight

TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
WHOLE_ROW = 1 << 30


class Numbers(NamedTuple):
    """Scales or offsets. unit: a dtype that has them exactly; steps: their dtype, where a number is a unit times a
    step; shared: groups of a unit, where that divides them, else all."""

    unit: torch.dtype
    steps: torch.dtype | None = None
    shared: int = 1
    size: float = 1.0


class Form(NamedTuple):
    levels: tuple[int, ...] | None
    group_size: int
    scales: Numbers
    offsets: Numbers | None = None


HALF, TINY_HALF = Numbers(torch.float16), Numbers(torch.float16, size=1e-6)
BF16, FLOAT = Numbers(torch.bfloat16, size=1e-9), Numbers(torch.float32)
FORMS = {
    "4 bits": Form(tuple(range(-8, 8)), 32, HALF),
    "4 bits, offsets": Form(tuple(range(16)), 32, TINY_HALF, BF16),
    "4 bits, steps": Form(tuple(range(16)), 32, *[Numbers(torch.float16, torch.uint8, 8)] * 2),
    "4 bits, zeros": Form(tuple(range(16)), 128, FLOAT, Numbers(torch.float32, torch.uint8)),
    "4 bits, table": Form(TABLE, 32, HALF),
    "4 bits, short table, groups of 16": Form((-12, -8, -6, 0, 1, 8, 12), 16, FLOAT, HALF),
    "5 bits": Form(tuple(range(-16, 16)), 64, BF16),
    "5 bits, one unit": Form(tuple(range(32)), 32, *[Numbers(torch.float32, torch.uint8, WHOLE_ROW)] * 2),
    "5 bits, groups of 16": Form(tuple(range(-3, 20)), 16, HALF, HALF),
    "6 bits": Form(tuple(range(-32, 32)), WHOLE_ROW, FLOAT),
    "6 bits, signed steps": Form(tuple(range(-32, 32)), 16, Numbers(torch.float16, torch.int8, 16)),
    "6 bits, offsets": Form(tuple(range(64)), 64, HALF, Numbers(torch.bfloat16, torch.int8, 2)),
    "8 bits": Form(None, 32, HALF, FLOAT),
    "8 bits, signed steps": Form(None, 128, Numbers(torch.float32, torch.int8, 4)),
    "8 bits, long table": Form((*range(-128, 0, 3), 5, 127), 16, FLOAT, BF16),
}


def coded(
    form: Form,
    outs: int,
    ins: int,
    dtype: torch.dtype = torch.float32,
    *,
    seed: int = 0,
    activations: Activations = "int8",
) -> QuantisedWeight:
    """[outs, ins]"""
    generator = torch.Generator().manual_seed(seed)
    levels = torch.tensor(form.levels or range(-128, 128), dtype=torch.int8)
    integers = levels[torch.randint(len(levels), (outs, ins), generator=generator)]
    group_size = ins if form.group_size == WHOLE_ROW else form.group_size
    groups = -(-ins // group_size)
    scales = numbers(form.scales, outs, groups, generator)
    offsets = None if form.offsets is None else numbers(form.offsets, outs, groups, generator)
    return QuantisedWeight(integers, scales, group_size, dtype, activations, offsets, form.levels)


def numbers(kind: Numbers, outs: int, groups: int, generator: torch.Generator) -> torch.Tensor | Factors:
    """[outs, groups]"""
    shared = kind.shared if groups % kind.shared == 0 else groups
    units = (kind.size * torch.randn(outs, groups // shared, generator=generator)).to(kind.unit).float()
    if kind.steps is None:
        return units
    range_ = torch.iinfo(kind.steps)
    steps = torch.randint(range_.min, range_.max + 1, (outs, groups), generator=generator)
    return Factors(units, steps.to(kind.steps))


def rows_of(weight: QuantisedWeight, rows: slice) -> QuantisedWeight:
    return weight.mapped(lambda tensor: tensor[rows].contiguous())
