"""Which setting a sweep recommends, for made-up tables."""

from __future__ import annotations

import random
import tomllib

import msgspec
import pytest

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_bench.given.drafters import candidates
from specserve_bench.sweep.cells import Cell, settings_of
from specserve_bench.sweep.recommend import TOLERANCE, recommend
from specserve_bench.sweep.toml import engine_toml
from specserve_bench.sweep.with_setting import with_setting

CELLS = [Cell(1, 0.0), Cell(32, 0.8)]
OFF, NGRAM, EAGLE, BOTH = settings_of(("ngram", "eagle"))


def advised(off=(100, 1000), ngram=(100, 1000), eagle=(100, 1000), both=(100, 1000)):
    rows = zip((OFF, NGRAM, EAGLE, BOTH), (off, ngram, eagle, both), strict=True)
    return recommend({setting: dict(zip(CELLS, rates, strict=True)) for setting, rates in rows})


def test_settings_are_none_each_and_all():
    assert [setting.name for setting in (OFF, NGRAM, EAGLE, BOTH)] == ["off", "ngram", "eagle", "ngram + eagle"]
    assert settings_of(("ngram",)) == [OFF, NGRAM]


def test_the_fastest_is_used():
    found = advised(ngram=(150, 1100), eagle=(200, 1200), both=(180, 1000))
    assert found.setting == EAGLE
    assert found.why == (
        "Use eagle: on average 1.55 times the tokens per second of no drafter, and at the least 1.20 times, "
        "with 32 requests at temperature 0.8."
    )


def test_fewer_drafters_are_used_where_more_gain_next_to_nothing():
    found = advised(eagle=(200, 1200), both=(203, 1210))
    assert found.setting == EAGLE
    assert found.why.endswith("; ngram + eagle is only 1.2% faster.")
    assert advised(eagle=(200, 1200), both=(220, 1300)).setting == BOTH


def test_what_is_slower_anywhere_is_not_used_and_told():
    found = advised(ngram=(120, 1000), both=(400, 900))
    assert found.setting == NGRAM
    assert found.why.endswith(
        "ngram + eagle is 73.2% faster on average, "
        "but 10.0% slower than no drafter with 32 requests at temperature 0.8."
    )


def test_no_drafter_is_used_where_none_pays():
    found = advised(ngram=(101, 1010), eagle=(90, 900), both=(95, 800))
    assert found.setting == OFF
    assert found.why.startswith("Use no drafter: ")


def test_noise_does_not_count_as_slower():
    assert advised(ngram=(200, 1000 * (1 - TOLERANCE / 2))).setting == NGRAM


def test_what_is_recommended_is_within_the_tolerance_of_the_best_of_every_table():
    """By brute force, over random tables."""
    chance = random.Random(0)
    for _ in range(500):
        table = {s: {cell: chance.uniform(50, 150) for cell in CELLS} for s in (OFF, NGRAM, EAGLE, BOTH)}
        chosen = table[recommend(table).setting]

        def mean(rates):
            return (rates[CELLS[0]] * rates[CELLS[1]]) ** 0.5

        safe = [r for r in table.values() if all(r[c] >= table[OFF][c] * (1 - TOLERANCE) for c in CELLS)]
        assert chosen in safe
        assert mean(chosen) >= max(map(mean, safe)) * (1 - TOLERANCE)


def test_drafters_are_those_that_are_named_or_have_options():
    assert candidates(EngineConfig()) == ("ngram",)
    assert candidates(EngineConfig(plugins=("eagle", "kv_events"))) == ("eagle",)
    options = {"eagle": {"model": "demo-eagle3"}, "kv_events": {}}
    assert candidates(EngineConfig(plugins=("ngram",), plugin_options=options)) == ("ngram", "eagle")


def test_without_any_drafter_it_says_which_there_are():
    with pytest.raises(ConfigError, match=r"installed are .*eagle.*ngram.*--plugin ngram"):
        candidates(EngineConfig(no_plugins=("ngram",)))


def test_a_setting_has_the_other_plugins_and_no_other_drafter():
    options = {"eagle": {"model": "demo-eagle3"}, "adaptive": {"objective": "latency"}}
    config = EngineConfig(plugins=("ngram", "lora"), plugin_options=options)
    off, ngram, eagle, both = (with_setting(config, each, ("ngram", "eagle")) for each in (OFF, NGRAM, EAGLE, BOTH))
    assert (off.plugins, off.plugin_options.keys()) == (("lora",), {"adaptive"})
    assert (ngram.plugins, ngram.plugin_options.keys()) == (("lora", "ngram"), {"adaptive"})
    assert (eagle.plugins, eagle.plugin_options) == (("lora", "eagle"), options)
    assert (both.plugins, both.plugin_options) == (("lora", "ngram", "eagle"), options)


def test_what_is_written_is_read_as_the_same_configuration():
    config = EngineConfig(
        model='a "quoted"\\path\n',
        plugins=("ngram",),
        prefix_cache=False,
        graph_buckets=(1, 2),
        generation_config={"temperature": 0.5, "top_p": 1e-7},
        plugin_options={"eagle": {"model": "ü", "deep": {"a b": [1, True, "x"]}, "none": None}},
    )
    read = tomllib.loads(engine_toml(config, "two\nlines"))
    options = read.pop("plugins")
    found = msgspec.convert({**read["engine"], "plugin_options": options}, EngineConfig)
    assert options["eagle"].keys() == {"model", "deep"}
    assert msgspec.structs.replace(found, plugin_options=config.plugin_options) == config


def test_defaults_are_not_written():
    assert engine_toml(EngineConfig(), "x") == '# x\n\n[engine]\nmodel = "demo"\n'
