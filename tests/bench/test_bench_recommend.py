"""Which setting a sweep recommends, for made-up tables."""

from __future__ import annotations

import random

from specserve_bench.sweep.cells import Cell, settings_of
from specserve_bench.sweep.compared import TOLERANCE
from specserve_bench.sweep.recommend import recommend

CELLS = [Cell(1, 0.0), Cell(32, 0.8)]
OFF, NGRAM, EAGLE, BOTH = SETTINGS = settings_of(("ngram", "eagle"))


def advised(off=(100, 1000), ngram=(100, 1000), eagle=(100, 1000), both=(100, 1000), noise=(0.0, 0.0)):
    rows = zip(SETTINGS, (off, ngram, eagle, both), strict=True)
    table = {setting: dict(zip(CELLS, rates, strict=True)) for setting, rates in rows}
    return recommend(table, dict(zip(CELLS, noise, strict=True)))


def test_settings_are_none_each_and_all():
    assert [setting.name for setting in SETTINGS] == ["off", "ngram", "eagle", "ngram + eagle"]
    assert settings_of(("ngram",)) == [OFF, NGRAM]


def test_what_is_fastest_under_every_load_is_used():
    found = advised(ngram=(150, 1100), eagle=(200, 1200), both=(180, 1000))
    assert found.setting == EAGLE
    assert found.why == (
        "Use eagle under every load. On average it has 1.55 times the tokens per second of no drafter, "
        "and at the least 1.20 times, with 32 requests at temperature 0.8."
    )


def test_fewer_drafters_are_used_where_more_gain_next_to_nothing():
    found = advised(eagle=(200, 1200), both=(203, 1210))
    assert found.setting == EAGLE
    assert found.why.endswith("; ngram + eagle is 1.2% faster on average.")
    assert advised(eagle=(200, 1200), both=(220, 1300)).setting == BOTH


def test_of_equally_many_drafters_that_are_close_the_faster_is_used():
    assert advised(ngram=(200, 1210), eagle=(200, 1200)).setting == NGRAM
    assert advised(ngram=(200, 1200), eagle=(200, 1210)).setting == EAGLE


def test_one_setting_that_is_close_everywhere_is_used_before_two_that_are_fastest_somewhere():
    found = advised(ngram=(200, 1180), eagle=(198, 1200))
    assert {each.setting for each in found.loads} == {found.setting} == {EAGLE}


def test_under_each_load_what_is_fastest_there_is_used():
    found = advised(ngram=(150, 1300), eagle=(200, 1200))
    assert found.setting == EAGLE
    assert found.why == (
        "Use eagle with one request at temperature 0; ngram with 32 requests at temperature 0.8. "
        "No setting is as fast as these under every load; one server for all of them had better use eagle: "
        "on average it has 1.55 times the tokens per second of no drafter, and at the least 1.20 times, "
        "with 32 requests at temperature 0.8."
    )
    assert [each.setting for each in found.loads] == [EAGLE, NGRAM]


def test_under_each_load_fewer_drafters_are_used_where_more_gain_next_to_nothing():
    found = advised(ngram=(100, 1300), eagle=(200, 1000), both=(202, 1000))
    assert [(each.setting, each.best) for each in found.loads] == [(EAGLE, BOTH), (NGRAM, NGRAM)]


def test_what_is_slower_anywhere_is_not_used_for_all_loads():
    found = advised(ngram=(120, 1000), both=(400, 900))
    assert found.setting == NGRAM
    assert [each.setting for each in found.loads] == [BOTH, OFF]
    assert found.why.endswith(
        "; ngram + eagle is 73.2% faster on average, "
        "but 10.0% slower than no drafter with 32 requests at temperature 0.8."
    )


def test_no_drafter_is_used_where_none_pays():
    found = advised(ngram=(101, 1010), eagle=(90, 900), both=(95, 800))
    assert found.setting == OFF
    assert found.why.startswith("Use no drafter under every load. None that is nowhere slower than no drafter is more ")


def test_three_percent_do_not_count_as_slower():
    assert advised(ngram=(200, 1000 * (1 - TOLERANCE / 2))).setting == NGRAM


def test_within_noise_the_simpler_setting_is_used_and_it_says_so():
    table = {"eagle": (200, 1200), "both": (216, 1290)}
    assert advised(**table).setting == BOTH
    found = advised(**table, noise=(0.12, 0.12))
    assert found.setting == EAGLE
    assert found.by_noise
    assert found.why.startswith(
        "Use eagle under every load; with one request at temperature 0 ngram + eagle is 8.0% faster, which is within "
        "noise (12.0%); with 32 requests"
    )
    assert found.why.endswith("; ngram + eagle is 7.7% faster on average, which is within noise.")


def test_noise_does_not_count_as_slower():
    table = {"ngram": (200, 940)}
    assert [each.setting for each in advised(**table).loads] == [NGRAM, OFF]
    assert advised(**table).setting == OFF
    found = advised(**table, noise=(0.0, 0.08))
    assert found.setting == NGRAM
    assert "with 32 requests at temperature 0.8 no drafter is 6.4% faster, which is within noise (8.0%)" in found.why


def test_noise_that_decides_what_all_loads_use_asks_for_more_rounds():
    table = {"ngram": (150, 940), "eagle": (100, 1300)}
    assert advised(**table).setting == EAGLE
    found = advised(**table, noise=(0.0, 0.08))
    assert [each.setting for each in found.loads] == [NGRAM, EAGLE]
    assert (found.setting, found.by_noise) == (NGRAM, True)


def test_noise_that_decides_nothing_asks_for_no_more_rounds():
    assert not advised(eagle=(200, 2000), noise=(0.5, 0.5)).by_noise
    assert not advised(eagle=(200, 2000), both=(202, 2010), noise=(0.01, 0.01)).by_noise


def test_the_mean_of_many_loads_is_known_better_than_each_of_them():
    found = advised(eagle=(200, 1200), both=(216, 1290), noise=(0.0801, 0.0801))
    assert found.setting == BOTH  # 7.7% faster, noise of the mean is 5.7%


def test_loads_are_told_by_temperature():
    cells = [Cell(number, temperature) for temperature in (0.0, 1.0) for number in (1, 8, 32)]
    fast = {cell: 200.0 if cell.temperature == 0 or cell.concurrency == 8 else 90.0 for cell in cells}
    found = recommend({OFF: dict.fromkeys(cells, 100.0), NGRAM: fast}, {})
    assert found.why.startswith(
        "Use ngram with 1, 8 and 32 requests at temperature 0 and with 8 requests at temperature 1; "
        "no drafter with 1 and 32 requests at temperature 1. No setting"
    )


def test_what_is_recommended_is_within_the_tolerance_of_the_best_of_every_table():
    """By brute force, over random tables: under every load, and where no setting is so, by the rule for all loads."""
    chance = random.Random(0)
    counts = {True: 0, False: 0}
    for _ in range(1000):
        top = chance.choice((105, 150))
        table = {s: {cell: chance.uniform(95, top) for cell in CELLS} for s in SETTINGS}
        noise = {cell: chance.choice((0.0, 0.2)) for cell in CELLS}
        allowed = {cell: max(TOLERANCE, noise[cell]) for cell in CELLS}
        found = recommend(table, noise)
        for each in found.loads:
            best = max(rates[each.cell] for rates in table.values())
            assert (each.best_rate, each.rate) == (best, table[each.setting][each.cell])
            assert each.rate * (1 + allowed[each.cell]) >= best
            if each.rate * (1 + TOLERANCE) < best:
                told = f"is {best / each.rate - 1:.1%} faster, which is within noise ({allowed[each.cell]:.1%})"
                assert told in found.why

        best = {cell: max(rates[cell] for rates in table.values()) for cell in CELLS}
        close = [s for s in SETTINGS if all(table[s][c] * (1 + allowed[c]) >= best[c] for c in CELLS)]
        safe = [s for s in SETTINGS if all(table[s][c] * (1 + allowed[c]) >= table[OFF][c] for c in CELLS)]
        counts[bool(close)] += 1
        assert found.setting in (close or safe)
        assert not close or {each.setting for each in found.loads} == {found.setting}
        of_mean = max(TOLERANCE, (noise[CELLS[0]] ** 2 + noise[CELLS[1]] ** 2) ** 0.5 / 2)
        assert mean(table[found.setting]) * (1 + of_mean) >= max(mean(table[s]) for s in close or safe)
    assert min(counts.values()) > 100


def mean(rates):
    return (rates[CELLS[0]] * rates[CELLS[1]]) ** 0.5
