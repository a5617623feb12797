"""What a sweep measured, by setting and load, and how far chance alone moves it. Knows neither servers nor tables."""

from __future__ import annotations

from math import log, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specserve_bench.sweep.cells import Cell, Setting

    Samples = Mapping[Setting, Mapping[Cell, Sequence[float]]]
    """Output tokens per second, one number per round."""

MEDIAN_BY_MEAN = 1.25
"""The standard error of a median, by that of a mean, of many normal values; of few values it is smaller."""


def samples_of(runs: Iterable[tuple[Setting, Cell, float]]) -> dict[Setting, dict[Cell, list[float]]]:
    """`runs`: in the order of their rounds."""
    found: dict[Setting, dict[Cell, list[float]]] = {}
    for setting, cell, rate in runs:
        found.setdefault(setting, {}).setdefault(cell, []).append(rate)
    return found


def medians(samples: Samples) -> dict[Setting, dict[Cell, float]]:
    return {setting: {cell: median(rates) for cell, rates in cells.items()} for setting, cells in samples.items()}


def noise(samples: Samples) -> dict[Cell, float]:
    """By load: how far the medians of two equally fast settings may lie apart by chance, as a share.

    Twice the standard error of their difference. What remains of a rate once the mean of its setting and that of its
    round are taken away (both of logarithms) is chance; all settings tell it together. Loads with one round are left
    out: they tell nothing.
    """
    cells = dict.fromkeys(cell for by_cell in samples.values() for cell in by_cell)
    every = {cell: [by_cell[cell] for by_cell in samples.values() if cell in by_cell] for cell in cells}
    return {cell: found for cell, rows in every.items() if (found := noise_of(rows)) is not None}


def noise_of(rows: Sequence[Sequence[float]]) -> float | None:
    """`rows`: the rates of a setting each, by round. None of fewer than two settings or two rounds."""
    rounds = min(map(len, rows))
    if rounds < 2 or len(rows) < 2:
        return None
    logs = [[log(rate) for rate in row[:rounds]] for row in rows]
    of_setting = [fmean(row) for row in logs]
    of_round = [fmean(column) for column in zip(*logs, strict=True)]
    whole = fmean(of_setting)
    squares = sum(
        (value - of_setting[i] - of_round[j] + whole) ** 2 for i, row in enumerate(logs) for j, value in enumerate(row)
    )
    deviation = sqrt(squares / ((len(rows) - 1) * (rounds - 1)))
    return 2 * MEDIAN_BY_MEAN * deviation * sqrt(2 / rounds)
