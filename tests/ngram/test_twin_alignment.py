"""The native index and its twin where a text diverges from the one that it repeats, at every bound of realigning."""

from __future__ import annotations

from typing import Any

import pytest
from twin.pair import Pair

from specserve_ngram._native import Tuning

OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 1000, "generations": 4, "shared": False, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 6, "max_depth": 20, "min_survival": 0.0,
}  # fmt: skip
BASE = list(range(100, 260))
WINDOW, DIVERGENCE, REALIGN = Tuning.SEARCH_WINDOW, Tuning.MAX_DIVERGENCE, Tuning.REALIGN_LENGTH


def feed(output: list[int]) -> list[int]:
    """How many nodes each draft has while `output` comes token by token after the text that it edits."""
    pair = Pair(**OPTIONS)
    handle, sizes = pair.start("", [*BASE, 1, 2, 3]), []
    for token in output:
        (draft,) = pair.step([handle], [token], [1], [8])
        sizes.append(0 if draft is None else len(draft[0]))
    return sizes


@pytest.mark.parametrize("count", [1, 2, WINDOW - 1, WINDOW, WINDOW + 1])
def test_tokens_are_deleted(count: int) -> None:
    sizes = feed(BASE[:20] + BASE[20 + count : 40 + count])
    assert sizes[-1] == 8


@pytest.mark.parametrize("count", [1, 2, 3, DIVERGENCE - 1, DIVERGENCE, DIVERGENCE + 1, DIVERGENCE + 2])
@pytest.mark.parametrize("substituted", [False, True])
def test_tokens_are_inserted_or_substituted(count: int, substituted: bool) -> None:
    rest = 20 + count if substituted else 20
    sizes = feed(BASE[:20] + list(range(500, 500 + count)) + BASE[rest : rest + 20])
    assert sizes[-1] == 8


@pytest.mark.parametrize("length", range(1, REALIGN + 2))
@pytest.mark.parametrize("diverged", [DIVERGENCE - 5, DIVERGENCE + 1])
def test_another_part_is_followed_when_the_match_there_is_long(length: int, diverged: int) -> None:
    feed(BASE[:20] + list(range(500, 500 + diverged)) + BASE[120 : 120 + length] + [600, 601] + BASE[130:140])


def test_the_followed_part_ends() -> None:
    feed([*BASE[-10:], 1, 2, 3, *BASE[-10:], 1, 2, 3, 7])


def test_a_token_that_is_ahead_many_times() -> None:
    feed(BASE[:5] + [9, 100, 9, 101, 9, 104] + BASE[2:9] + [9] * 5 + BASE[4:9] + [9] * 9)
