"""Which drafters a sweep compares, and the configurations that it writes."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve_bench.given.drafters import candidates
from specserve_bench.sweep.cells import settings_of
from specserve_bench.sweep.toml import engine_toml
from specserve_bench.sweep.with_setting import with_setting

OFF, NGRAM, EAGLE, BOTH = settings_of(("ngram", "eagle"))


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
