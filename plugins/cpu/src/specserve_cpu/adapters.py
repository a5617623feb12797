"""An adapter whose low-rank parts were packed into the panels that the kernels read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import torch.nn.functional as F

from specserve_cpu.linear import PackedLinear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.batch.lora_plan import LoraPlan
    from specserve.protocols import AdapterWeights, LowRankPart
    from specserve_cpu import _native

PLACES = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj")
NAME = re.compile(rf"layers\.(\d+)\.({'|'.join(PLACES)})")


class PackedParts(NamedTuple):
    """What an adapter adds to one projection."""

    native: _native.Kind.LowRank
    missing: int
    """Columns of zeros that an input needs beside its own, as those of a `PackedLinear` do."""


class PackedAdapter:
    """By projection name, and as one for the fused layers."""

    def __init__(self, machine: _native.Machine, kind: type[_native.Kind], weights: AdapterWeights) -> None:
        self.parts = {name: packed_parts(machine, kind, parts) for name, parts in weights.items()}
        by_place = {(int(m[1]), m[2]): self.parts[name].native for name in weights if (m := NAME.fullmatch(name))}
        layers = range(1 + max((layer for layer, _ in by_place), default=-1))
        self.native = kind.Adapter([tuple(by_place.get((layer, place)) for place in PLACES) for layer in layers])


def packed_parts(machine: _native.Machine, kind: type[_native.Kind], parts: Iterable[LowRankPart]) -> PackedParts:
    """Ranks are filled up with a zero to an even number: bfloat16 inputs are taken in pairs."""
    packed, missing = [], 0
    for part in parts:
        odd = part.down.shape[0] % 2
        down = PackedLinear(machine, F.pad(part.down, (0, 0, 0, odd)), None)
        up = PackedLinear(machine, F.pad(part.up, (0, odd)), None)
        packed.append((down.native, up.native, part.outs.start))
        missing = down.missing
    return PackedParts(kind.LowRank(packed), missing)


def native_segments(plan: LoraPlan | None) -> list[tuple[int, int, _native.Kind.Adapter]]:
    """Those with an adapter, for the fused layers."""
    segments = () if plan is None else plan.segments
    return [(begin, end, adapter.native) for begin, end, adapter in segments if adapter is not None]
