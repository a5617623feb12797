"""How far chance alone moves the medians of a sweep."""

from __future__ import annotations

import random
from statistics import median

import pytest

from specserve_bench.sweep.cells import Cell, settings_of
from specserve_bench.sweep.samples import medians, noise, samples_of

CELL = Cell(8, 0.0)
SETTINGS = settings_of(("ngram", "eagle"))


def rounds_of(chance, num_rounds, deviation):
    """Equally fast settings on a machine whose minutes differ by a tenth."""
    minutes = [chance.uniform(95, 105) for _ in range(num_rounds)]
    return {setting: {CELL: [minute * (1 + chance.gauss(0, deviation)) for minute in minutes]} for setting in SETTINGS}


def test_runs_are_sorted_by_setting_and_load_and_medians_count():
    off, ngram = SETTINGS[:2]
    other = Cell(1, 0.0)
    found = samples_of([(off, CELL, 1.0), (ngram, CELL, 9.0), (off, other, 5.0), (off, CELL, 4.0), (off, CELL, 2.0)])
    assert found == {off: {CELL: [1.0, 4.0, 2.0], other: [5.0]}, ngram: {CELL: [9.0]}}
    assert medians(found) == {off: {CELL: 2.0, other: 5.0}, ngram: {CELL: 9.0}}


@pytest.mark.parametrize("num_rounds", [3, 6])
@pytest.mark.parametrize("deviation", [0.03, 0.05])
def test_few_medians_of_equally_fast_settings_are_further_apart(num_rounds, deviation):
    """And noise is no larger than it takes: many come near it."""
    chance = random.Random(1)
    leads = []
    for _ in range(400):
        samples = rounds_of(chance, num_rounds, deviation)
        (a, *_), (b, *_) = (samples[setting].values() for setting in SETTINGS[:2])
        leads.append(abs(median(a) / median(b) - 1) / noise(samples)[CELL])
    assert sum(lead > 1 for lead in leads) / 400 < 0.12
    assert sum(lead > 0.4 for lead in leads) / 400 > 0.2


def test_a_slow_minute_of_all_settings_is_no_noise():
    samples = {setting: {CELL: [100.0, 50.0, 100.0]} for setting in SETTINGS}
    assert noise(samples)[CELL] == pytest.approx(0, abs=1e-9)


def test_one_round_tells_nothing_and_rounds_that_are_missing_are_left_out():
    off, ngram = SETTINGS[:2]
    assert noise({off: {CELL: [1.0]}, ngram: {CELL: [2.0]}}) == {}
    three = noise({off: {CELL: [1.0, 1.1, 1.2]}, ngram: {CELL: [2.0, 2.1]}})
    assert three == noise({off: {CELL: [1.0, 1.1]}, ngram: {CELL: [2.0, 2.1]}})


def test_noise_of_two_settings_is_by_hand():
    """Logarithms of ratios between the two: 0 and 0.02, so that each deviates by 0.005 from its means, four times."""
    from math import exp, sqrt

    off, ngram = SETTINGS[:2]
    found = noise({off: {CELL: [1.0, 1.0]}, ngram: {CELL: [1.0, exp(0.02)]}})
    assert found[CELL] == pytest.approx(2 * 1.25 * sqrt(4 * 0.005**2 / 1) * sqrt(2 / 2))
