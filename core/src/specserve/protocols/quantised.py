"""Weights that are stored as integers of at most 8 bits, with a scale for every group of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor


Activations: TypeAlias = Literal["auto", "int8"]
"""What a quantised weight is multiplied by. auto: inputs in the model's dtype. int8: inputs rounded to the nearest of
255 multiples of a scale, which is the largest input of a row and group / 127."""


DENSE_AT_ONCE = 1 << 22
"""Numbers that lie in memory as float32 while a weight is made dense."""


class Factors(NamedTuple):
    """Numbers of groups as products, for formats that store them so: the number of output o and group g is
    units[o, g // m] * steps[o, g], rounded to float32, where m groups share a unit."""

    units: Tensor
    """[out, groups / m] float32."""
    steps: Tensor
    """[out, groups], int8 or uint8."""

    @property
    def groups_of_unit(self) -> int:
        """m"""
        return self.steps.shape[-1] // self.units.shape[-1]


class QuantisedWeight(NamedTuple):
    """weight[o, i] = integers[o, i] * scales[o, i // group_size] + offsets[o, i // group_size], where the product and
    the sum are rounded to float32."""

    integers: Tensor
    """[out, in] int8; of a stack of matrices, as some files have those of experts, [..., out, in], and so its other
    tensors."""
    scales: Tensor | Factors
    """[out, groups] float32."""
    group_size: int
    dtype: torch.dtype
    """The dtype of the model, and of what `dense` gives."""
    activations: Activations = "auto"
    """What the checkpoint is made for; kernels that cannot round inputs multiply them in the model's dtype."""
    offsets: Tensor | Factors | None = None
    """[out, groups] float32; None for zeros."""
    levels: tuple[int, ...] | None = None
    """The numbers that `integers` may be, ascending: up to sixteen fit into 4 bits. None: any of int8."""

    @property
    def shape(self) -> torch.Size:
        return self.integers.shape

    @property
    def num_groups(self) -> int:
        """Of each output."""
        return (self.scales.steps if isinstance(self.scales, Factors) else self.scales).shape[-1]

    @property
    def is_plain(self) -> bool:
        """Whether it is integers times scales and nothing else."""
        return self.offsets is None and not isinstance(self.scales, Factors)

    def dense(self) -> Tensor:
        """The weight itself, rounded to the model's dtype: [out, in]."""
        at_once = max(DENSE_AT_ONCE * len(self.integers) // max(self.integers.numel(), 1), 1)
        out = self.integers.new_empty(self.shape, dtype=self.dtype)
        for begin in range(0, len(out), at_once):
            some = slice(begin, begin + at_once)
            out[some] = self.at(some).wide()
        return out

    def at(self, rows: slice) -> QuantisedWeight:
        """These of the first dimension."""
        return self.mapped(lambda tensor: tensor[rows])

    def wide(self) -> Tensor:
        """The weight itself: [out, in] float32."""
        weight = self.integers.float().mul_(self.by_input(self.scales))
        return weight if self.offsets is None else weight.add_(self.by_input(self.offsets))

    def by_input(self, numbers: Tensor | Factors) -> Tensor:
        """numbers: `scales` or `offsets`; those of every input: [out, in] float32."""
        return numbers_of(numbers).repeat_interleave(self.group_size, -1)[..., : self.integers.shape[-1]]

    def on(self, device: torch.device) -> QuantisedWeight:
        return self.mapped(lambda tensor: tensor.to(device))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> QuantisedWeight:
        """The weight with `change` of every tensor of it."""
        return self.with_numbers(change(self.integers), lambda numbers: changed(numbers, change))

    def with_numbers(self, integers: Tensor, change: Callable[[Tensor | Factors], Tensor | Factors]) -> QuantisedWeight:
        """The weight with these integers, and `change` of its scales and of its offsets."""
        offsets = None if self.offsets is None else change(self.offsets)
        return self._replace(integers=integers, scales=change(self.scales), offsets=offsets)


class StackedWeight(NamedTuple):
    """Weights with the same inputs, whose outputs are those of one map: some formats keep parts of it with different
    numbers of bits."""

    parts: tuple[QuantisedWeight, ...]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.parts[0].dtype


class PackedRows(ABC):
    """A packed linear map that can also tell its weights, so that an embedding and the output head need one copy."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """x: [T, in] -> [T, out], a fresh tensor."""

    @abstractmethod
    def rows(self, outputs: Tensor) -> Tensor:
        """outputs: [T] int64 -> [T, in] in the model's dtype."""


def numbers_of(numbers: Tensor | Factors) -> Tensor:
    """Scales or offsets: [out, groups] float32."""
    if not isinstance(numbers, Factors):
        return numbers
    return numbers.units.repeat_interleave(numbers.groups_of_unit, -1) * numbers.steps


def changed(numbers: Tensor | Factors, change: Callable[[Tensor], Tensor]) -> Tensor | Factors:
    """numbers: scales or offsets; with `change` of each of their tensors."""
    return Factors(*map(change, numbers)) if isinstance(numbers, Factors) else change(numbers)
