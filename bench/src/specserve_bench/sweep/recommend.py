"""Which setting to use, from the tokens per second of all. One rule, without measuring or printing.

Of the settings that are nowhere slower than no drafter, the fastest on average; but where one with fewer drafters comes
within the tolerance of it, that one. Differences below the tolerance are taken for noise.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from specserve_bench.sweep.cells import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve_bench.sweep.cells import Cell, Setting

    Rates = Mapping[Cell, float]
    """Output tokens per second of one setting. All settings have the same cells."""

TOLERANCE = 0.03


class Recommendation(NamedTuple):
    setting: Setting
    why: str
    """One sentence."""


class Compared(NamedTuple):
    """A setting beside no drafter."""

    setting: Setting
    mean: float
    """The geometric mean of its speed-ups over all cells."""
    lowest: float
    lowest_cell: Cell

    @property
    def is_safe(self) -> bool:
        return self.lowest >= 1 - TOLERANCE


def recommend(table: Mapping[Setting, Rates]) -> Recommendation:
    """One of the settings is that without drafters; every rate is above 0."""
    compared = compare(table)
    safe = [each for each in compared if each.is_safe]
    fastest = max(safe, key=lambda each: each.mean)
    close = [each for each in safe if each.mean >= fastest.mean * (1 - TOLERANCE)]
    chosen = min(close, key=lambda each: (len(each.setting.drafters), -each.mean))
    return Recommendation(chosen.setting, sentence(chosen, fastest, compared))


def compare(table: Mapping[Setting, Rates]) -> list[Compared]:
    plain = next(rates for setting, rates in table.items() if setting.name == PLAIN)
    found = []
    for setting, rates in table.items():
        ratios = {cell: rates[cell] / plain[cell] for cell in plain}
        lowest = min(ratios, key=lambda cell: ratios[cell])
        found.append(Compared(setting, prod(ratios.values()) ** (1 / len(ratios)), ratios[lowest], lowest))
    return found


def sentence(chosen: Compared, fastest: Compared, compared: list[Compared]) -> str:
    parts = [advice(chosen)]
    if fastest is not chosen:
        parts.append(f"{fastest.setting.name} is only {fastest.mean / chosen.mean - 1:.1%} faster")
    refused = max((each for each in compared if not each.is_safe), key=lambda each: each.mean, default=None)
    if refused is not None and refused.mean > chosen.mean:
        parts.append(
            f"{refused.setting.name} is {refused.mean / chosen.mean - 1:.1%} faster on average, but "
            f"{1 - refused.lowest:.1%} slower than no drafter with {refused.lowest_cell}"
        )
    return "; ".join(parts) + "."


def advice(chosen: Compared) -> str:
    if chosen.setting.name == PLAIN:
        return f"Use no drafter: none that is nowhere slower is more than {TOLERANCE:.0%} faster on average"
    return (
        f"Use {chosen.setting.name}: on average {chosen.mean:.2f} times the tokens per second of no drafter, "
        f"and at the least {chosen.lowest:.2f} times, with {chosen.lowest_cell}"
    )
