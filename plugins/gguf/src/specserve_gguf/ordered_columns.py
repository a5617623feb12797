"""Columns of a weight in the model's order, exactly: a quantised one keeps its integers, scales and offsets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from specserve.api.models import Factors, QuantisedWeight

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_gguf.value_heads import ValueHeads


def in_order(weight: Tensor | QuantisedWeight, heads: ValueHeads) -> Tensor | QuantisedWeight:
    """heads: of the columns; each is a whole number of groups."""
    columns = torch.from_numpy(heads.order())
    if not isinstance(weight, QuantisedWeight):
        return weight[:, columns]
    groups = heads._replace(size=heads.size // weight.group_size)
    return weight.with_numbers(weight.integers[:, columns], lambda numbers: groups_in_order(numbers, groups))


def groups_in_order(numbers: Tensor | Factors, groups: ValueHeads) -> Tensor | Factors:
    """Scales or offsets; where two heads share a unit, each gets its own."""
    order = torch.from_numpy(groups.order())
    if not isinstance(numbers, Factors):
        return numbers[:, order]
    shared = math.gcd(numbers.groups_of_unit, groups.size)
    units = numbers.units.repeat_interleave(numbers.groups_of_unit // shared, 1)
    of_units = groups._replace(size=groups.size // shared).order()
    return Factors(units[:, torch.from_numpy(of_units)], numbers.steps[:, order])
