"""Alternating measurements and their medians.

Variants alternate (A B A B), so that a slow minute of the machine affects all of them.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def alternate(variants: Mapping[str, Callable[[], float]], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Call each variant once per round; returns what they returned. Warm-up rounds are left out."""
    for _ in range(warmup):
        for measure in variants.values():
            measure()
    samples: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, measure in variants.items():
            samples[name].append(measure())
    return samples


def balanced(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """The same in turns forwards and backwards, for differences that are smaller than what the variant before costs."""
    samples = alternate(variants, 0)
    for turn in range(rounds):
        names = [*variants]
        for name in names if turn % 2 else reversed(names):
            samples[name].append(variants[name]())
    return samples


def medians(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {name: median(values) for name, values in samples.items()}


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def spread(values: Sequence[float]) -> str:
    """Lowest and highest, for a table cell."""
    return f"{min(values):.4g}..{max(values):.4g}"
