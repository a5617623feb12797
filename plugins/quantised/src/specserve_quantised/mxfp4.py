"""Weights of four bits with a scale for every 32, as gpt-oss's checkpoints have those of experts.

A number is one of sixteen, times a power of two (Open Compute Project, Microscaling Formats 1.0, 2023). Owns the names
and shapes of these tensors; knows nothing of experts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api import ModelError
from specserve.api.models import ALL_ROWS, QuantisedWeight, QuantMethod, StoredTensor, WeightSource, dense, expect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

BLOCKS, SCALES = "_blocks", "_scales"
GROUP = 32
BYTES = GROUP // 2
"""Of the numbers that share a scale. The lower half of a byte comes first."""
DOUBLED = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""The sixteen numbers, times two, so that they are integers."""
BIAS, NOT_A_NUMBER = 127, 255
"""Of a scale, which is an exponent."""


class Mxfp4(QuantMethod):
    name = "mxfp4"

    def open(self, stored: WeightSource, settings: Mapping[str, object], where: str) -> WeightSource:
        return Mxfp4Source(stored)


class Mxfp4Source(WeightSource):
    """For every `NAME_blocks` [..., out, groups, 16] and `NAME_scales` [..., out, groups] a tensor NAME
    [..., out, 32 groups]; every other tensor as it is there."""

    def __init__(self, stored: WeightSource) -> None:
        self.path, self.stored = stored.path, stored
        tensors = dict(stored.tensors)
        self.packed = {name.removesuffix(BLOCKS) for name in stored.tensors if name.endswith(BLOCKS)}
        for name in self.packed:
            blocks = tensors.pop(f"{name}{BLOCKS}")
            scales = self.stored.find(f"{name}{SCALES}")
            if blocks.dtype != "U8" or len(blocks.shape) < 3 or blocks.shape[-1] != BYTES:
                raise ModelError(
                    f"{blocks.file}: tensor {name}{BLOCKS} must be U8 [..., out, groups, {BYTES}]; got {blocks.dtype} "
                    f"{list(blocks.shape)}. Use another checkpoint."
                )
            expect(scales, f"{name}{SCALES}", blocks.shape[:-1], ("U8",), f"{name}{BLOCKS}")
            del tensors[f"{name}{SCALES}"]
            shape = (*blocks.shape[:-2], GROUP * blocks.shape[-2])
            num_bytes = blocks.num_bytes + scales.num_bytes
            tensors[name] = StoredTensor(shape, "MXFP4", num_bytes, blocks.file, quantised=True)
        self.tensors = tensors
        self._latest: tuple[str, slice, QuantisedWeight] | None = None
        """Gates and ups are asked for one after the other, and lie in the same tensor."""

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        if name not in self.packed:
            return self.stored.read(name, rows)
        if self._latest is None or self._latest[:2] != (name, rows):
            blocks, scales = (dense(self.stored.read(f"{name}{kind}", rows)) for kind in (BLOCKS, SCALES))
            self._latest = name, rows, unpacked(blocks, scales)
        return self._latest[2]


def unpacked(blocks: Tensor, scales: Tensor) -> QuantisedWeight:
    """blocks: [..., groups, 16] uint8, scales: [..., groups] uint8 -> [..., 32 groups], without a loss."""
    doubled = torch.tensor(DOUBLED, dtype=torch.int8)
    pairs = torch.stack((doubled.repeat(16), doubled.repeat_interleave(16)), -1).view(torch.int16).flatten()
    integers = pairs[blocks.int()].view(torch.int8).flatten(-2)
    powers = torch.ldexp(torch.ones(scales.shape), scales.int() - (BIAS + 1))
    powers.masked_fill_(scales == NOT_A_NUMBER, float("nan"))
    return QuantisedWeight(integers, powers, GROUP, torch.float32, levels=tuple(sorted({*DOUBLED})))
