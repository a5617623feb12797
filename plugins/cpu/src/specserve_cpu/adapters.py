"""LoRA adapters packed into the panels that the kernels read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import torch.nn.functional as F

from specserve_cpu.linear import PackedLinear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.api import AdapterWeights, LowRankPart
    from specserve.api.batch import LoraPlan
    from specserve_cpu import _native

PROJECTIONS = ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "router", "g_proj")
OF_MIXERS = {"in_proj": "qkv_proj", "in_proj_qkv": "qkv_proj", "out_proj": "o_proj"}
"""Which of those the maps around a short convolution or a gated delta net are."""
OF_EXPERTS = ("gate_up_proj", "down_proj")
LAYER_PROJECTION = re.compile(rf"layers\.(\d+)\.({'|'.join((*PROJECTIONS, *OF_MIXERS))})")
EXPERT_PROJECTION = re.compile(rf"layers\.(\d+)\.experts\.(\d+)\.({'|'.join(OF_EXPERTS)})")


class PackedParts(NamedTuple):
    """The low-rank parts of one projection."""

    native: _native.DtypeModule.LowRankParts
    padding: int
    """Columns of zeros to add to an input, as for a `PackedLinear`."""


class PackedAdapter:
    """The parts by projection name, and all of them as one native object for the fused layers."""

    def __init__(self, machine: _native.Machine, module: type[_native.DtypeModule], weights: AdapterWeights) -> None:
        self.parts = {name: pack_parts(machine, module, parts) for name, parts in weights.items()}
        native = {name: part.native for name, part in self.parts.items()}
        of_layers = {
            (int(m[1]), OF_MIXERS.get(m[2], m[2])): native[name]
            for name in native
            if (m := LAYER_PROJECTION.fullmatch(name))
        }
        experts: dict[int, dict[tuple[int, str], _native.DtypeModule.LowRankParts]] = {}
        for name in native:
            if m := EXPERT_PROJECTION.fullmatch(name):
                experts.setdefault(int(m[1]), {})[int(m[2]), m[3]] = native[name]
        layers = range(1 + max((*(layer for layer, _ in of_layers), *experts), default=-1))
        self.native = module.PackedAdapter(
            [
                (*(of_layers.get((layer, p)) for p in PROJECTIONS), parts_of_experts(experts.get(layer, {})))
                for layer in layers
            ]
        )


def parts_of_experts(
    found: dict[tuple[int, str], _native.DtypeModule.LowRankParts],
) -> list[tuple[_native.DtypeModule.LowRankParts | None, ...]]:
    """found: by expert and projection. Of every expert up to the last one that has parts."""
    last = max((expert for expert, _ in found), default=-1)
    return [tuple(found.get((expert, p)) for p in OF_EXPERTS) for expert in range(last + 1)]


def pack_parts(
    machine: _native.Machine, module: type[_native.DtypeModule], parts: Iterable[LowRankPart]
) -> PackedParts:
    """Ranks are padded to an even number: bfloat16 dot products take inputs in pairs."""
    packed, padding = [], 0
    for part in parts:
        odd = part.down.shape[0] % 2
        down = PackedLinear(machine, F.pad(part.down, (0, 0, 0, odd)), None)
        up = PackedLinear(machine, F.pad(part.up, (0, odd)), None)
        packed.append((down.native, up.native, part.outs.start))
        padding = down.padding
    return PackedParts(module.LowRankParts(packed), padding)


def native_segments(plan: LoraPlan | None) -> list[tuple[int, int, _native.DtypeModule.PackedAdapter]]:
    """The segments with an adapter, for the fused layers."""
    segments = () if plan is None else plan.segments
    return [(begin, end, adapter.native) for begin, end, adapter in segments if adapter is not None]
