"""Which setting to use, from the tokens per second of all. One rule, without measuring or printing.

Under a load the fastest, or one with fewer drafters that comes within the tolerance of it. For all loads together one
that is so under each of them; where there is none, of those that are nowhere slower than no drafter the fastest on
average. The tolerance is 3 %, and more where chance moves the medians further than that.
"""

from __future__ import annotations

from math import prod, sqrt
from typing import TYPE_CHECKING

from specserve_bench.sweep.cells import PLAIN
from specserve_bench.sweep.compared import TOLERANCE, Advice, Compared, Recommendation, Tolerances
from specserve_bench.sweep.sentences import why

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve_bench.sweep.cells import Cell, Setting
    from specserve_bench.sweep.compared import Rates


def recommend(table: Mapping[Setting, Rates], noise: Mapping[Cell, float]) -> Recommendation:
    """One of the settings is that without drafters; every rate is above 0. `noise`: of those loads for which it is
    known."""
    compared = compare(table)
    allowed = tolerances(compared, noise)
    chosen = choose(compared, allowed)
    every = is_close_everywhere(chosen, compared, allowed)
    loads = [
        advice(compared, cell, [chosen] if every else close_to_best(compared, cell, tolerance))
        for cell, tolerance in allowed.cells.items()
    ]
    strict = choose(compared, tolerances(compared, {}))
    by_noise = chosen is not strict or any(each.lead > TOLERANCE for each in loads)
    return Recommendation(chosen.setting, why(chosen, compared, loads, allowed), loads, by_noise)


def compare(table: Mapping[Setting, Rates]) -> list[Compared]:
    plain = next(rates for setting, rates in table.items() if setting.name == PLAIN)
    found = []
    for setting, rates in table.items():
        ratios = {cell: rates[cell] / plain[cell] for cell in plain}
        lowest = min(ratios, key=lambda cell: ratios[cell])
        mean = prod(ratios.values()) ** (1 / len(ratios))
        found.append(Compared(setting, rates, mean, ratios[lowest], lowest))
    return found


def tolerances(compared: Sequence[Compared], noise: Mapping[Cell, float]) -> Tolerances:
    """Chance in one cell knows nothing of chance in another: of a mean it is less."""
    cells = [*compared[0].rates]
    of_mean = sqrt(sum(noise.get(cell, 0.0) ** 2 for cell in cells)) / len(cells)
    return Tolerances({cell: max(TOLERANCE, noise.get(cell, 0.0)) for cell in cells}, max(TOLERANCE, of_mean))


def choose(compared: Sequence[Compared], allowed: Tolerances) -> Compared:
    everywhere = [each for each in compared if is_close_everywhere(each, compared, allowed)]
    safe = everywhere or [each for each in compared if is_safe(each, compared, allowed)]
    fastest = max(each.mean for each in safe)
    close = [each for each in safe if fastest / each.mean - 1 <= allowed.mean]
    return min(close, key=lambda each: (len(each.setting.drafters), -each.mean))


def is_close_everywhere(one: Compared, compared: Sequence[Compared], allowed: Tolerances) -> bool:
    return all(one in close_to_best(compared, cell, tolerance) for cell, tolerance in allowed.cells.items())


def close_to_best(compared: Sequence[Compared], cell: Cell, tolerance: float) -> list[Compared]:
    best = max(each.rates[cell] for each in compared)
    return [each for each in compared if best / each.rates[cell] - 1 <= tolerance]


def is_safe(one: Compared, compared: Sequence[Compared], allowed: Tolerances) -> bool:
    """Whether it is nowhere slower than no drafter."""
    plain = next(each.rates for each in compared if each.setting.name == PLAIN)
    return all(plain[cell] / rate - 1 <= allowed.cells[cell] for cell, rate in one.rates.items())


def advice(compared: Sequence[Compared], cell: Cell, close: Sequence[Compared]) -> Advice:
    best = max(compared, key=lambda each: each.rates[cell])
    chosen = min(close, key=lambda each: (len(each.setting.drafters), -each.rates[cell]))
    return Advice(cell, chosen.setting, chosen.rates[cell], best.setting, best.rates[cell])
