"""Options that are wrong, contradict each other or exceed the engine's limit: one clear sentence each."""

from __future__ import annotations

import json

import pytest

from specserve.errors import ConfigError
from specserve.plugins.options import convert
from specserve_adaptive.options import AdaptiveOptions
from specserve_workbench.testing.engines import make_engine


def options(**table):
    return convert("adaptive", AdaptiveOptions, table)


@pytest.mark.parametrize(("table", "message"), [
    ({"mode": "clever"}, "adaptive.mode: must be one of 'ranked', 'tiers', 'static'"),
    ({"objective": "speed"}, "adaptive.objective: must be one of 'fair', 'throughput', 'latency'"),
    ({"mode": "static"}, "mode=static needs tokens"),
    ({"mode": "static", "tokens": -1}, "adaptive.tokens"),
    ({"tokens": 3}, "tokens belongs to mode=static; got tokens = 3 with mode = 'ranked'"),
    ({"mode": "tiers", "objective": "fair"}, "objective belongs to mode=ranked"),
    ({"candidates": [1, 3]}, "candidates belongs to mode=tiers"),
    ({"mode": "static", "tokens": 1, "config": "x.toml"}, "config belongs to mode=tiers"),
    ({"mode": "tiers", "candidates": []}, "candidates is empty; name at least one"),
    ({"mode": "tiers", "candidates": [-1, 2]}, "candidates: -1 is no number of draft tokens"),
    ({"mode": "tiers", "candidates": [3, 1]}, "candidates must ascend, without repetition; got"),
    ({"mode": "tiers", "candidates": [1, 1]}, "candidates must ascend, without repetition; got"),
    ({"mode": "tiers", "candidates": "1,3"}, "adaptive.candidates"),
    ({"mode": "tiers", "ema_alpha": 0}, "adaptive.ema_alpha"),
    ({"mode": "tiers", "interval": 0}, "adaptive.interval"),
    ({"mode": "tiers", "config": "a.toml", "interval": 3}, "config and interval contradict each other"),
    ({"modus": "ranked"}, "adaptive.modus is not an option"),
])  # fmt: skip
def test_wrong_options(table, message):
    with pytest.raises(ConfigError, match=message):
        options(**table)


@pytest.mark.parametrize(("text", "message"), [
    ("candidates = [", "neither JSON, which begins with a brace, nor valid TOML"),
    ("{]", "is not valid JSON: a key that is not in double quotes at line 1, column 2"),
    ("candidates = []", "candidates is empty"),
    ("width = 3", "width: there is no such name here; there are candidates, by_batch_size"),
    ("[by_batch_size]\nmany = [1]", "by_batch_size: 'many' is no batch size"),
    ("[by_batch_size]\n8 = [2, 1]", "by_batch_size.8 must ascend"),
    ("interval = 0", "interval"),
])  # fmt: skip
def test_a_file_that_is_not_valid(tmp_path, text, message):
    file = tmp_path / "tiers.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message) as error:
        _ = options(mode="tiers", config=str(file)).tiers
    assert "adaptive.config=" in str(error.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be read.*Name a TOML or JSON file"):
        _ = options(mode="tiers", config=str(tmp_path / "none.json")).tiers


@pytest.mark.parametrize("write", [
    lambda file: file.write_text("candidates = [1, 5]\nema_alpha = 0.5\n[by_batch_size]\n8 = [0, 2]\n32 = [0]\n"),
    lambda file: file.write_text(
        json.dumps({"candidates": [1, 5], "ema_alpha": 0.5, "by_batch_size": {"32": [0], "8": [0, 2]}})
    ),
], ids=["toml", "json"])  # fmt: skip
def test_a_file_states_all_settings(tmp_path, write):
    file = tmp_path / "tiers"
    write(file)
    settings = options(mode="tiers", config=str(file)).tiers
    assert settings.tables == {1: (1, 5), 8: (0, 2), 32: (0,)}
    assert (settings.ema_alpha, settings.interval) == (0.5, 5)


@pytest.mark.parametrize("table", [
    {"mode": "static", "tokens": 9}, {"mode": "tiers", "candidates": [1, 9]},
])  # fmt: skip
def test_widths_over_the_engines_limit_stop_the_start(toy_model, table):
    with pytest.raises(ConfigError, match=r"9 draft tokens are more than the engine's limit of 8.*--max-draft-tokens"):
        make_engine(toy_model, plugins=("ngram", "adaptive"), plugin_options={"adaptive": table}, max_draft_tokens=8)
