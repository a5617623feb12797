"""An adapter whose low-rank parts were packed into the panels that the kernels read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_cpu.linear import PackedLinear

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.lowrank import AdapterWeights
    from specserve_cpu import _native


class PackedAdapter:
    """Parts by projection name: down to the rank, up again, and the outputs that the result is added to."""

    def __init__(self, machine: _native.Machine, weights: AdapterWeights) -> None:
        self.parts = {
            name: [(PackedLinear(machine, p.down, None), PackedLinear(machine, p.up, None), p.outs) for p in parts]
            for name, parts in weights.items()
        }

    def add(self, projection: str, x: Tensor, out: Tensor) -> None:
        """x: [T, in]; adds to out: [T, out] in place."""
        for down, up, outs in self.parts.get(projection, ()):
            out[:, outs] += up(down(x))
