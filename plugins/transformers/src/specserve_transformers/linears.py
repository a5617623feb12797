"""Linear maps of transformers' modules, computed by the kernel set, and several of one input as one product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from specserve.api.models import NO_BATCH, BatchRows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api.models import Projection
    from specserve_transformers.step import Step


def tiles_of(function: Callable[[Tensor, slice], Tensor], x: Tensor, row_tile: int | None) -> Tensor:
    """A row-wise function of [T, n], given exactly `row_tile` rows at a time and their place, padded."""
    count = len(x)
    if row_tile is None:
        return function(x, slice(0, count))
    missing = -count % row_tile if count else row_tile
    if missing:
        x = torch.cat((x, x.new_zeros((missing, *x.shape[1:]))))
    places = [slice(begin, begin + row_tile) for begin in range(0, len(x), row_tile)]
    outs = [function(x[place], place) for place in places]
    return (outs[0] if len(outs) == 1 else torch.cat(outs))[:count]


class Leaf(nn.Module):
    """A module of ours: called without torch's detour by hooks, and found before torch looks for modules."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Product(Leaf):
    """One product of the kernel set: x [..., in] -> [..., out]. `adaptable`: its rows are those of the step."""

    def __init__(self, projection: Projection, step: Step, row_tile: int | None, *, adaptable: bool) -> None:
        super().__init__()
        self.projection, self.step, self.row_tile, self.adaptable = projection, step, row_tile, adaptable
        self.in_features, self.out_features = projection.in_features, projection.out_features
        self.bias = None
        self.weight = projection.weight.new_empty(0)
        """For code that asks for its dtype or device."""
        self.packed: Callable[[Tensor], Tensor] | None = None
        """The whole map, once it is packed and where nothing is added to it."""

    def finish(self) -> None:
        """The projection is final."""
        made = self.projection
        if self.row_tile is None and not made.deltas and made.whole.combine is None:
            self.packed = made.packed

    def __call__(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            rows = x.view(-1, self.in_features) if x.is_contiguous() else x.reshape(-1, self.in_features)
            out = self.rows(rows) if self.packed is None else self.packed(rows)
            return out.view(*x.shape[:-1], self.out_features)

    def rows(self, x: Tensor) -> Tensor:
        lora = self.step.at.lora if self.adaptable else None

        def tile(rows: Tensor, place: slice) -> Tensor:
            return self.projection(rows, NO_BATCH if lora is None else BatchRows(place, lora))

        return tiles_of(tile, x, self.row_tile)


class SharedProduct:
    """One product whose outputs are those of several linear maps of the same input."""

    def __init__(self, product: Product, parts: Sequence[slice]) -> None:
        self.product, self.parts = product, parts
        self.x: Tensor | None = None
        self.out: Tensor | None = None
        self.taken = 0

    def part(self, index: int, x: Tensor) -> Tensor:
        if self.x is not x or self.taken & (1 << index):
            self.x, self.out, self.taken = x, self.product(x), 0
        assert self.out is not None
        part = self.out[..., self.parts[index]]
        self.taken |= 1 << index
        if self.taken == (1 << len(self.parts)) - 1:
            self.x = self.out = None
            self.taken = 0
        return part


class PartOfProduct(Leaf):
    """One of several linear maps of the same input."""

    def __init__(self, shared: SharedProduct, index: int) -> None:
        super().__init__()
        self.shared, self.index = shared, index
        part = shared.parts[index]
        self.in_features, self.out_features = shared.product.in_features, part.stop - part.start
        self.bias = None
        self.weight = shared.product.weight

    def __call__(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return self.shared.part(self.index, x)
