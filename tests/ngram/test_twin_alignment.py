"""The native index and its twin where a text leaves the one that it follows, at every bound of how it comes back."""

from __future__ import annotations

from typing import Any

import pytest
from twin.alignment import AHEAD, CONVINCING, PATIENCE
from twin.pair import Pair

OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 1000, "generations": 4, "shared": False, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 6, "max_depth": 20, "min_survival": 0.0,
}  # fmt: skip
BASE = list(range(100, 260))


def feed(output: list[int]) -> list[int]:
    """How many nodes each draft has while `output` comes token by token after the text that it edits."""
    pair = Pair(**OPTIONS)
    handle, sizes = pair.start("", [*BASE, 1, 2, 3]), []
    for token in output:
        (draft,) = pair.step([handle], [token], [1], [8])
        sizes.append(0 if draft is None else len(draft[0]))
    return sizes


@pytest.mark.parametrize("gone", [1, 2, AHEAD - 1, AHEAD, AHEAD + 1])
def test_tokens_are_left_out(gone: int) -> None:
    sizes = feed(BASE[:20] + BASE[20 + gone : 40 + gone])
    assert sizes[-1] == 8


@pytest.mark.parametrize("many", [1, 2, 3, PATIENCE - 1, PATIENCE, PATIENCE + 1, PATIENCE + 2])
@pytest.mark.parametrize("replaced", [False, True])
def test_tokens_are_put_in_or_replaced(many: int, replaced: bool) -> None:
    back = 20 + many if replaced else 20
    sizes = feed(BASE[:20] + list(range(500, 500 + many)) + BASE[back : back + 20])
    assert sizes[-1] == 8


@pytest.mark.parametrize("length", range(1, CONVINCING + 2))
@pytest.mark.parametrize("lost", [PATIENCE - 5, PATIENCE + 1])
def test_another_place_is_followed_when_the_match_there_convinces(length: int, lost: int) -> None:
    feed(BASE[:20] + list(range(500, 500 + lost)) + BASE[120 : 120 + length] + [600, 601] + BASE[130:140])


def test_the_followed_text_ends() -> None:
    feed([*BASE[-10:], 1, 2, 3, *BASE[-10:], 1, 2, 3, 7])


def test_a_token_that_comes_again_and_again_ahead() -> None:
    feed(BASE[:5] + [9, 100, 9, 101, 9, 104] + BASE[2:9] + [9] * 5 + BASE[4:9] + [9] * 9)
