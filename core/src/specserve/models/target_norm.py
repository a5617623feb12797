"""The norm between a model's last layer and its output head, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class TargetNorm:
    """The target's final norm, where a head reads what is behind it."""

    weight: Tensor | None
    eps: float
