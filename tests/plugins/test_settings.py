"""`--set NAME.key=value` and its merging over tables."""

from __future__ import annotations

from typing import Any

import pytest

from specserve.errors import ConfigError
from specserve.plugins.settings import merge, parse_settings


@pytest.mark.parametrize(
    ("setting", "table"),
    [
        ("ngram.max_n=4", {"ngram": {"max_n": "4"}}),
        ("lora.adapters.law=/models/a=b", {"lora": {"adapters": {"law": "/models/a=b"}}}),
        ('lora.adapters."llama-3.1"=/x', {"lora": {"adapters": {"llama-3.1": "/x"}}}),
        ("ngram.tree=true", {"ngram": {"tree": True}}),
        ("eagle.widths=[4, 2]", {"eagle": {"widths": [4, 2]}}),
        ("a.b=", {"a": {"b": ""}}),
    ],
)
def test_a_setting_becomes_a_table(setting: str, table: dict[str, Any]) -> None:
    assert parse_settings([setting]) == table


@pytest.mark.parametrize("setting", ["ngram.max_n", "ngram=4", ".a=1", "a..b=1", "a.=1", "a.b=[1", 'a."b=1'])
def test_what_is_no_setting_is_refused_with_the_form(setting: str) -> None:
    with pytest.raises(ConfigError, match="--set "):
        parse_settings([setting])


def test_later_settings_win_and_tables_merge_key_by_key() -> None:
    file = {"a": {"x": 1, "y": {"p": 1}}, "b": {"z": 3}}
    merged = merge(file, parse_settings(["a.y.q=2", "a.x=5", "a.x=6"]))
    assert merged == {"a": {"x": "6", "y": {"p": 1, "q": "2"}}, "b": {"z": 3}}
    assert file["a"] == {"x": 1, "y": {"p": 1}}
