"""A set of durations in a few numbers."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Distribution(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    count: int


def distribution(seconds: Sequence[float]) -> Distribution | None:
    """None of no durations."""
    if not seconds:
        return None
    ranked = sorted(1000 * each for each in seconds)
    p50, p90, p95, p99 = (percentile(ranked, percent) for percent in (50, 90, 95, 99))
    return Distribution(mean=fmean(ranked), p50=p50, p90=p90, p95=p95, p99=p99, max=ranked[-1], count=len(ranked))


def percentile(values: Iterable[float], percent: float) -> float:
    """Linear between neighbours, as numpy's default. `values` are in any order; ValueError of none."""
    ranked = sorted(values)
    if not ranked:
        raise ValueError("no values have no percentile")
    at = (len(ranked) - 1) * percent / 100
    low, high = math.floor(at), math.ceil(at)
    return ranked[low] + (ranked[high] - ranked[low]) * (at - low)
