"""Taking turns and taking medians: how contenders in one run are compared.

Contenders alternate (A B A B), so that a slow minute of the machine hits all of them; figures are medians.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def alternate(contenders: Mapping[str, Callable[[], float]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Call all contenders in turn, `rounds` times; returns each one's measurements. Warm-up calls come first and do not
    count."""
    for _ in range(warmup):
        for measure in contenders.values():
            measure()
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            taken[name].append(measure())
    return taken


def medians(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in taken.items()}


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, -(-len(ranked) * share // 1).__int__() - 1)]


def spread(values: Sequence[float]) -> str:
    """Lowest to highest, for a table cell."""
    return f"{min(values):.4g}..{max(values):.4g}"
