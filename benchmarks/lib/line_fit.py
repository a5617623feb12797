"""Straight lines through measured costs: cost = intercept + slope * n, with minimal relative errors.

Relative, since sizes double from point to point: ordinary least squares would fit the largest ones alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Line(NamedTuple):
    intercept: float
    slope: float

    def at(self, n: float) -> float:
        return self.intercept + self.slope * n


def fit(costs: Mapping[int, float]) -> Line:
    """Weighted least squares with weights 1 / cost^2. costs: at least two sizes, each with a cost above 0."""
    assert len(costs) >= 2
    weights = {n: cost**-2 for n, cost in costs.items()}
    total = sum(weights.values())
    mean_n = sum(w * n for n, w in weights.items()) / total
    mean_cost = sum(w * costs[n] for n, w in weights.items()) / total
    variance = sum(w * (n - mean_n) ** 2 for n, w in weights.items())
    slope = sum(w * (n - mean_n) * (costs[n] - mean_cost) for n, w in weights.items()) / variance
    return Line(mean_cost - slope * mean_n, slope)


def ratios_to_line(line: Line, costs: Mapping[int, float]) -> dict[int, float]:
    """cost / line by size: 1 on the line."""
    return {n: cost / line.at(n) for n, cost in costs.items()}


def largest_deviation(line: Line, costs: Mapping[int, float]) -> tuple[int, float]:
    """The size whose cost deviates most from the line, and its cost / line."""
    return max(ratios_to_line(line, costs).items(), key=lambda item: abs(item[1] - 1))
