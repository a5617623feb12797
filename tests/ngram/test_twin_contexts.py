"""The twin's own foundation: contexts in one group end at the same places, and texts do not run into each other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin.contexts import FRONT, Contexts

ORDERS: list[Any] = ["longest", "frequency", "recency"]


def extended(contexts: Contexts, text: str, more: str) -> str:
    for token in more:
        contexts.extend(text, token, len(text))
        text += token
    return text


@given(st.sampled_from(ORDERS), st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), max_size=40))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_groups_are_the_contexts_that_end_at_the_same_places(order: Any, tokens: list[tuple[int, str]]) -> None:
    contexts, texts = Contexts(order), ["", "", ""]
    for which, token in tokens:
        texts[which] = extended(contexts, texts[which], token)
    contexts.check()


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_follows_the_end_of_a_text(order: Any) -> None:
    contexts = Contexts(order)
    extended(contexts, "", "xab")
    extended(contexts, "", "cab")
    assert contexts.groups["ab"].counts == {}
    assert contexts.groups[""].counts.keys() == {"x", "a", "b", "c"}
    assert "bc" not in contexts.groups


def test_a_token_counts_at_the_longest_context_that_knew_it() -> None:
    contexts = Contexts("longest")
    extended(contexts, "", "xab.yab.xab")
    assert contexts.groups["xa"].counts == {"b": 2}
    assert contexts.groups["ya"].counts == {"b": 1}
    assert contexts.groups["a"].counts == {"b": 2}  # of xab and yab; the third was xa's


def test_a_token_counts_at_every_context_where_all_do() -> None:
    contexts = Contexts("frequency")
    extended(contexts, "", "xab.yab.xab")
    assert [contexts.groups[context].counts["b"] for context in ("xa", "ya", "a", "")] == [2, 1, 3, 3]


def test_the_front_holds_the_latest_first() -> None:
    contexts = Contexts("recency")
    extended(contexts, "", "".join("x" + chr(100 + i) for i in range(20)))
    assert contexts.groups["x"].front == [chr(100 + i) for i in range(19, 19 - FRONT, -1)]


def test_the_front_keeps_the_frequent_and_lets_the_newest_of_the_rest_in() -> None:
    contexts = Contexts("frequency")
    followers = "a" * 3 + "b" * 2 + "".join(chr(200 + i) for i in range(30))
    extended(contexts, "", "".join("x" + token for token in followers))
    assert contexts.groups["x"].front[:3] == ["a", "b", chr(229)]
    assert len(contexts.groups["x"].front) == FRONT
