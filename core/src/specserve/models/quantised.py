"""Weights of linear maps that may be quantised: made dense, stacked into one, and cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from specserve.protocols.quantised import DENSE_AT_ONCE, Factors, QuantisedWeight, StackedWeight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from specserve.protocols import TensorPart

Weight: TypeAlias = "Tensor | QuantisedWeight | StackedWeight"


class DeferredWeight(NamedTuple):
    """A weight that is read from its file where it is asked for, so that no more than one lies unpacked in memory."""

    shape: tuple[int, int]
    dtype: torch.dtype
    read: Callable[[], Weight]
    pieces: Callable[[], Iterator[Tensor | QuantisedWeight]]
    """The same rows in their order, each piece read where it is asked for."""


def dense(weight: Weight) -> Tensor:
    if isinstance(weight, StackedWeight):
        return torch.cat([part.dense() for part in weight.parts])
    return weight.dense() if isinstance(weight, QuantisedWeight) else weight


def to_eight_bits(weight: Tensor) -> QuantisedWeight:
    """weight: [out, in], rounded to the nearest of 255 multiples of a scale for each output, which is its largest
    number / 127. ValueError where a number is not finite."""
    if not weight.isfinite().all():
        raise ValueError("only finite weights can be quantised")
    integers = weight.new_empty(weight.shape, dtype=torch.int8)
    scales = weight.new_empty((len(weight), 1), dtype=torch.float32)
    at_once = max(DENSE_AT_ONCE // max(weight.shape[1], 1), 1)
    for begin in range(0, len(weight), at_once):
        rows = slice(begin, begin + at_once)
        wide = weight[rows].float()
        scales[rows] = wide.abs().amax(1, keepdim=True) / 127
        integers[rows] = torch.round(wide / scales[rows].clamp_min(torch.finfo(torch.float32).tiny)).to(torch.int8)
    return QuantisedWeight(integers, scales, weight.shape[1], weight.dtype)


def placed(weight: Tensor | QuantisedWeight, device: torch.device, dtype: torch.dtype) -> Tensor | QuantisedWeight:
    """A quantised weight on the device, for a model of that dtype; a tensor as it is."""
    return weight._replace(dtype=dtype).on(device) if isinstance(weight, QuantisedWeight) else weight


def stacked(weights: Sequence[Tensor | QuantisedWeight]) -> Weight:
    """Weights of maps with the same inputs as one weight: quantised where all are."""
    quantised = [weight for weight in weights if isinstance(weight, QuantisedWeight)]
    if len(quantised) < len(weights):
        return torch.cat([dense(weight) for weight in weights])
    first, *others = quantised
    if any(form_of(weight) != form_of(first) for weight in others):
        return StackedWeight(tuple(quantised))
    offsets = None if first.offsets is None else joined([w.offsets for w in quantised if w.offsets is not None])
    integers = torch.cat([weight.integers for weight in quantised])
    return first._replace(integers=integers, scales=joined([weight.scales for weight in quantised]), offsets=offsets)


def form_of(weight: QuantisedWeight) -> tuple[object, ...]:
    """Weights with equal forms can be stacked into one."""
    numbers = [
        numbers.groups_of_unit if isinstance(numbers, Factors) else numbers is None
        for numbers in (weight.scales, weight.offsets)
    ]
    steps = [numbers.steps.dtype for numbers in (weight.scales, weight.offsets) if isinstance(numbers, Factors)]
    return weight.group_size, weight.levels, weight.activations, *numbers, *steps


def joined(numbers: Sequence[Tensor | Factors]) -> Tensor | Factors:
    """Scales or offsets of weights of one form, below each other."""
    factors = [each for each in numbers if isinstance(each, Factors)]
    if factors:
        return Factors(torch.cat([each.units for each in factors]), torch.cat([each.steps for each in factors]))
    return torch.cat([each for each in numbers if not isinstance(each, Factors)])


def columns_of(weight: Tensor | QuantisedWeight, part: TensorPart) -> Tensor | QuantisedWeight:
    """The part's columns of these rows. ValueError where they begin or end within a group of a quantised weight."""
    columns = part.columns
    if columns == slice(None):
        return weight
    if not isinstance(weight, QuantisedWeight):
        return weight[:, columns]
    integers = weight.integers[:, columns]
    if weight.num_groups == 1:
        return weight._replace(integers=integers)
    begin, end, _ = columns.indices(weight.shape[1])
    size = weight.group_size
    if begin % size or (end % size and end < weight.shape[1]):
        raise ValueError(f"columns {begin} to {end} are not whole groups of {size}")
    groups = slice(begin // size, -(-end // size))
    return weight.with_numbers(integers, lambda numbers: groups_of(numbers, groups))


def groups_of(numbers: Tensor | Factors, groups: slice) -> Tensor | Factors:
    """These groups of scales or offsets. A cut between groups that share a unit gives each group its own unit."""
    if not isinstance(numbers, Factors):
        return numbers[:, groups]
    shared = numbers.groups_of_unit
    if groups.start % shared or groups.stop % shared:
        return Factors(numbers.units.repeat_interleave(shared, 1)[:, groups], numbers.steps[:, groups])
    return Factors(numbers.units[:, groups.start // shared : groups.stop // shared], numbers.steps[:, groups])
