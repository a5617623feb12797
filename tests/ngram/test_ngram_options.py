"""Options out of range, or out of step with each other, say who, what, got and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from specserve.errors import ConfigError
from specserve.plugins.options import convert
from specserve.plugins.settings import parse_settings
from specserve_ngram.options import NgramOptions

if TYPE_CHECKING:
    from pathlib import Path


def options(*settings: str) -> Any:
    return convert("ngram", NgramOptions, parse_settings([f"ngram.{setting}" for setting in settings]).get("ngram", {}))


def test_the_defaults_hold_by_themselves() -> None:
    assert options() == NgramOptions()


def test_every_option_is_read_from_the_command_line(tmp_path: Path) -> None:
    docs = tmp_path / "y.jsonl"
    docs.touch()
    got = options("match_type=bfs", "shared=false", "max_draft_tokens=8", "min_survival=0.2", f"corpora.docs={docs}")
    assert got == NgramOptions(
        match_type="bfs", shared=False, max_draft_tokens=8, min_survival=0.2, corpora={"docs": str(docs)}
    )


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("match_type=lru", "must be one of 'learned', 'bfs', 'prob'"),
        ("shared=perhaps", "must be true or false"),
        ("capacity=999", "must be a whole number from 1000"),
        ("capacity=10000000000", " to 1000000000 "),
        ("generations=1", "must be a whole number from 2"),
        ("generations=16", " to 15 "),
        ("min_match=0", "must be a whole number from 1"),
        ("max_match=many", "must be a whole number from 1 to 65536"),
        ("min_breadth=0", "must be a whole number from 1"),
        ("max_breadth=33", " to 32 "),
        ("corpora=5", "must be an object of strings"),
        ("max_depth=abc", "must be a whole number from 1 to 256 (the value is 'abc')"),
        ("max_depth=257", " to 256 "),
        ("max_draft_tokens=0", "must be a whole number from 1"),
        ("min_survival=1.5", "must be a number from 0 to 1"),
        ("min_survival=-0.1", "must be a number from 0 to 1"),
        ("min_survival=nan", "must be a number from 0 to 1"),
        ("max_corpora=14", " to 13 "),
        ("max_corpus_tokens=0", "must be a whole number from 1"),
    ],
)
def test_an_option_out_of_range_is_named_with_its_value(setting: str, said: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(ConfigError) as refused:
        options(setting)
    message = str(refused.value)
    assert message.startswith(f"ngram.{name}: ")
    assert said in message
    assert f"(the value is {value!r})" in message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["min_match=8", "max_match=4"], "min_match must not exceed max_match; got min_match = 8 and max_match = 4"),
        (["min_breadth=4", "max_breadth=2"], "min_breadth must not exceed max_breadth; got min_breadth = 4"),
        (["generations=10", "max_corpora=6"], "together must be at most 15; got generations = 10 and max_corpora = 6"),
        (["max_corpora=0", "corpora.a=x"], "corpora names 1 and max_corpora allows 0"),
        (['corpora."a b"=x'], "'a b' is not a corpus name; use 1 to 64 of the characters"),
    ],
)
def test_options_that_contradict_each_other_are_refused(settings: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        options(*settings)
    assert str(refused.value).startswith("option of plugin ngram: ")
    assert said in str(refused.value)


@pytest.mark.parametrize("capacity", [63, 64])
def test_a_capacity_that_is_not_larger_than_the_depth_is_refused(capacity: int) -> None:
    with pytest.raises(ConfigError, match=f"capacity must be larger than max_depth.*got capacity = {capacity} and max"):
        NgramOptions(capacity=capacity, max_depth=64)


def test_a_misspelt_option_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"ngram\.max_dept is not an option; did you mean 'max_depth'\?"):
        options("max_dept=3")
