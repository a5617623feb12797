"""`--set NAME.key=value` and its merging over tables."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
import pytest

from specserve.errors import ConfigError
from specserve.plugins.options import convert
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


class Inner(msgspec.Struct, frozen=True, kw_only=True):
    share: float = 0.5


class Bounded(msgspec.Struct, frozen=True, kw_only=True):
    depth: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    least: Annotated[int, msgspec.Meta(ge=0)] | None = None
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] = 0.5
    any_number: float = 1.0
    flag: bool = False
    names: list[str] = []
    table: dict[str, int] = {}
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("depth", "abc", "mine.depth: must be a whole number from 1 to 64 (the value is 'abc')"),
        ("depth", "65", "mine.depth: must be a whole number from 1 to 64 (the value is '65')"),
        ("depth", "1.5", "mine.depth: must be a whole number from 1 to 64 (the value is '1.5')"),
        ("depth", [], "mine.depth: must be a whole number from 1 to 64 (the value is [])"),
        ("least", "-1", "mine.least: must be a whole number of at least 0 (the value is '-1')"),
        ("share", "1", "mine.share: must be a number more than 0 and less than 1 (the value is '1')"),
        ("any_number", "x", "mine.any_number: must be a number (the value is 'x')"),
        ("any_number", math.nan, "mine.any_number: must be a number; got nan"),
        ("any_number", "nan", "mine.any_number: must be a number; got nan"),
        ("flag", "perhaps", "mine.flag: must be true or false (the value is 'perhaps')"),
        ("names", "a", "mine.names: must be a list of strings (the value is 'a')"),
        ("table", {"a": "x"}, 'mine.table["a"]: must be an integer (the value is "x")'),
        ("inner", 5, 'mine.inner: must be an object with "share" (the value is 5)'),
        ("inner", {"share": "much"}, "mine.inner.share: must be a number (the value is 'much')"),
        ("inner", {"share": math.nan}, "mine.inner.share: must be a number; got nan"),
    ],
)
def test_an_error_of_a_number_says_its_range(key, value, said):
    with pytest.raises(ConfigError) as caught:
        convert("mine", Bounded, {key: value})
    assert said in str(caught.value)
