"""Weights of linear maps that may be quantised: made dense, and stacked into one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.protocols.quantised import QuantisedWeight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.protocols import TensorPart


def dense(weight: Tensor | QuantisedWeight) -> Tensor:
    return weight.dense() if isinstance(weight, QuantisedWeight) else weight


def stacked(weights: Sequence[Tensor | QuantisedWeight]) -> Tensor | QuantisedWeight:
    """Weights of maps with the same inputs as one weight: quantised where all are, with groups of one size."""
    quantised = [weight for weight in weights if isinstance(weight, QuantisedWeight)]
    if len(quantised) < len(weights) or len({weight.group_size for weight in quantised}) > 1:
        return torch.cat([dense(weight) for weight in weights])
    integers = torch.cat([weight.integers for weight in quantised])
    return quantised[0]._replace(integers=integers, scales=torch.cat([weight.scales for weight in quantised]))


def columns_of(weight: Tensor | QuantisedWeight, part: TensorPart) -> Tensor | QuantisedWeight:
    """The part's columns of these rows. ValueError where they begin or end within a group of a quantised weight."""
    columns = part.columns
    if columns == slice(None):
        return weight
    if not isinstance(weight, QuantisedWeight):
        return weight[:, columns]
    integers, scales, size = weight.integers[:, columns], weight.scales, weight.group_size
    if scales.shape[1] > 1:
        begin, end, _ = columns.indices(weight.shape[1])
        if begin % size or (end % size and end < weight.shape[1]):
            raise ValueError(f"columns {begin} to {end} are not whole groups of {size}")
        scales = scales[:, begin // size : -(-end // size)]
    return weight._replace(integers=integers, scales=scales)
