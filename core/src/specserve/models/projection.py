"""A named linear map of the model that plugins may adapt.

Owns one kernel and the list of additive deltas, so that the order of plugins does not matter; knows nothing about what
the deltas are (adapters) or what a kernel does with the weight (packing, fusing).
"""

from __future__ import annotations

import math
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.errors import PluginError
from specserve.faults import BadAnswerError
from specserve.models.quantised import DeferredWeight, dense
from specserve.protocols.part import WholeMap
from specserve.protocols.quantised import PackedRows, QuantisedWeight, StackedWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from specserve.batch.lora_plan import LoraPlan
    from specserve.models.quantised import Weight
    from specserve.protocols.model import Delta, Kernel, KernelSet

DEFAULT_OWNER = "the core"


def vectors_of(table: Tensor | Projection, ids: Tensor) -> Tensor:
    """table: [V, H], packed or not; ids: [T] int64 -> [T, H]."""
    return table.rows(ids) if isinstance(table, Projection) else table.index_select(0, ids)


class BatchRows(NamedTuple):
    """Which rows of a batch a tile holds, and the batch's plan of adapters."""

    rows: slice
    lora: LoraPlan | None


NO_BATCH = BatchRows(slice(0, 0), None)
"""For rows that have no deltas, such as those of the head."""


class Projection:
    """weight: [out, in]; bias: [out] or None; `parts` maps checkpoint names to slices of the output. `whole`: the map
    that this is a part of, where it is one."""

    def __init__(
        self,
        name: str,
        weight: Weight | DeferredWeight,
        bias: Tensor | None,
        kernel: Kernel,
        parts: Mapping[str, slice] | None = None,
        whole: WholeMap | None = None,
    ) -> None:
        self.name = name
        self._weight = weight
        self.dtype = weight.dtype
        self.bias = bias
        self.out_features, self.in_features = weight.shape
        self.parts: Mapping[str, slice] = MappingProxyType(
            dict(parts or {name.rpartition(".")[2]: slice(0, self.out_features)})
        )
        self.whole = whole or WholeMap(self.in_features, self.parts)
        self.kernel_owner = DEFAULT_OWNER
        self.packed: Callable[[Tensor], Tensor] | None = None
        self._kernel = kernel
        self.deltas: tuple[Delta, ...] = ()
        self._serves_rows = False
        self.unpacked_bytes = 0
        """What a weight of few bits takes in the model's dtype, where the kernels do not keep its integers."""

    def add_delta(self, delta: Delta) -> None:
        self.deltas += (delta,)

    def set_kernel(self, kernel: Kernel, owner: str) -> None:
        """Replace the kernel. Only one owner may: otherwise the kernel would depend on the order of plugins."""
        if self.kernel_owner not in (DEFAULT_OWNER, owner):
            raise PluginError(
                f"{owner} cannot set the kernel of projection {self.name}: {self.kernel_owner} has set it already. "
                f"Enable only one of {self.kernel_owner} and {owner}."
            )
        self._kernel = kernel
        self.kernel_owner = owner

    @property
    def weight(self) -> Tensor:
        """[out, in]: of quantised weights, what their integers stand for."""
        return dense(self.stored())

    def stored(self) -> Weight:
        """As the file has it, until it is packed."""
        return self._weight.read() if isinstance(self._weight, DeferredWeight) else self._weight

    def quantise(self, to: Callable[[Tensor], QuantisedWeight]) -> None:
        """Before `finalize`: a weight that its file has not quantised becomes `to` of it."""
        stored = self.stored()
        if isinstance(stored, torch.Tensor):
            self._weight = to(stored)

    def finalize(self, kernels: KernelSet) -> None:
        """After the last `set_kernel`: the core's own kernel packs the weight, and `weight` becomes empty. A kernel
        that packs nothing reads quantised weights in the model's dtype."""
        own = self.kernel_owner == DEFAULT_OWNER
        packed = packed_as_kept(kernels, self._weight, self.bias) if own else None
        if packed is None and isinstance(self._weight, DeferredWeight):
            self._weight = self._weight.read()
            packed = packed_as_kept(kernels, self._weight, self.bias) if own else None
        if packed is None:
            if isinstance(self._weight, QuantisedWeight | StackedWeight):
                self.unpacked_bytes = math.prod(self._weight.shape) * self.dtype.itemsize
            self._weight = self.weight
            packed = self.prepared_by(kernels, self._weight) if own else None
        self.packed = packed
        if packed is not None:
            self._kernel = lambda x, *_: packed(x)
        is_read = packed is None or (self._serves_rows and not isinstance(packed, PackedRows))
        self._weight = self.weight if is_read else torch.empty(0, dtype=self.dtype)

    def serve_rows(self) -> None:
        """Before `finalize`: `rows` will be asked for."""
        self._serves_rows = True

    def rows(self, outputs: Tensor) -> Tensor:
        """outputs: [T] int64 -> the weights of these outputs, [T, in], in the model's dtype. After `serve_rows`."""
        if isinstance(self.packed, PackedRows):
            return self.packed.rows(outputs)
        return self.weight.index_select(0, outputs)

    def prepared_by(self, kernels: KernelSet, weight: Tensor) -> Callable[[Tensor], Tensor] | None:
        """weight: in the model's dtype."""
        return kernels.prepare_linear(weight, self.bias)

    def __call__(self, x: Tensor, at: BatchRows = NO_BATCH) -> Tensor:
        """x: [T, in] -> [T, out], a fresh tensor; the whole output where `whole.combine` makes it."""
        out = self.product(x)
        self.add_deltas(x, out, at)
        return out if self.whole.combine is None else self.whole.combine(out)

    def product(self, x: Tensor) -> Tensor:
        """x: [T, in] -> [T, out], what the kernel gives."""
        out = self._kernel(x, self.weight, self.bias)
        if out.shape != (len(x), self.out_features):  # a broadcast would reach the rows of other requests
            raise BadAnswerError("gave a product of another shape than rows and outputs")
        return out

    def add_deltas(self, x: Tensor, out: Tensor, at: BatchRows) -> None:
        """x: [T, in]; adds to out: [T, out]."""
        for delta in self.deltas:
            delta(x, out, at.rows, at.lora)


class Router(Projection):
    """[experts, in]: its outputs choose experts, so no kernel set rounds its weight."""

    def quantise(self, to: Callable[[Tensor], QuantisedWeight]) -> None:
        """It stays as it is."""

    def prepared_by(self, kernels: KernelSet, weight: Tensor) -> Callable[[Tensor], Tensor] | None:
        return kernels.prepare_router(weight, self.bias)


class WideRouter(Router):
    """A router whose weight and outputs are float32, whatever the model's dtype. What adapters add to them is computed
    in the model's."""

    def __call__(self, x: Tensor, at: BatchRows = NO_BATCH) -> Tensor:
        """x: [T, in] in the model's dtype -> [T, out] in float32."""
        out = self.product(x.float())
        if self.deltas:
            added = x.new_zeros(out.shape)
            self.add_deltas(x, added, at)
            out += added
        return out if self.whole.combine is None else self.whole.combine(out)


def packed_as_kept(
    kernels: KernelSet, weight: Weight | DeferredWeight, bias: Tensor | None
) -> Callable[[Tensor], Tensor] | None:
    """The map of a quantised weight; None where it is none, or the kernels cannot keep it so."""
    if isinstance(weight, DeferredWeight):
        return kernels.prepare_pieces(weight.pieces(), bias)
    if isinstance(weight, QuantisedWeight) and weight.is_plain:
        return kernels.prepare_quantised(weight, bias)
    if isinstance(weight, QuantisedWeight | StackedWeight):
        parts = weight.parts if isinstance(weight, StackedWeight) else (weight,)
        return kernels.prepare_stacked(StackedWeight(parts), bias)
    return None
