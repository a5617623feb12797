"""Straight lines through measured costs: cost = base + each * n, the relative errors as small as can be.

Relative, since the sizes double from point to point: plain least squares would look at the largest ones alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Line(NamedTuple):
    """cost(n) = base + each * n."""

    base: float
    each: float

    def at(self, n: float) -> float:
        return self.base + self.each * n


def fit(costs: Mapping[int, float]) -> Line:
    """costs: at least two sizes, each with a cost above 0. Weighted least squares, weights 1 / cost^2."""
    assert len(costs) >= 2
    weights = {n: cost**-2 for n, cost in costs.items()}
    total = sum(weights.values())
    mean_n = sum(w * n for n, w in weights.items()) / total
    mean_cost = sum(w * costs[n] for n, w in weights.items()) / total
    spread = sum(w * (n - mean_n) ** 2 for n, w in weights.items())
    each = sum(w * (n - mean_n) * (costs[n] - mean_cost) for n, w in weights.items()) / spread
    return Line(mean_cost - each * mean_n, each)


def off(line: Line, costs: Mapping[int, float]) -> dict[int, float]:
    """By size, cost / line: 1 on it."""
    return {n: cost / line.at(n) for n, cost in costs.items()}


def farthest(line: Line, costs: Mapping[int, float]) -> tuple[int, float]:
    """The size that is farthest from the line, and its cost / line."""
    return max(off(line, costs).items(), key=lambda item: abs(item[1] - 1))
