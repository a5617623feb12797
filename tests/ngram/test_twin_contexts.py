"""The reference counts contexts as it should: held against a plain search of the texts, and on examples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twin.contexts import Contexts, suffixes

from specserve_ngram._native import Tuning

RANKINGS: list[Any] = ["update_exclusion", "frequency", "recency"]


def extended(contexts: Contexts, text: str, more: str) -> str:
    for token in more:
        contexts.extend(text, token, len(text))
        text += token
    return text


@given(st.sampled_from(RANKINGS), st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), max_size=40))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_contexts_are_those_of_the_texts(ranking: Any, tokens: list[tuple[int, str]]) -> None:
    contexts, texts = Contexts(ranking), ["", "", ""]
    for which, token in tokens:
        texts[which] = extended(contexts, texts[which], token)
    prefixes = {text[:length] for text in texts for length in range(len(text) + 1)}
    ends = {suffix: {p for p in prefixes if p.endswith(suffix)} for prefix in prefixes for suffix in suffixes(prefix)}
    assert contexts.occurrences == {context: len(found) for context, found in ends.items()}
    for context in ends.keys() - {""}:
        assert set(contexts.followers(context)) == {p[-1] for p in prefixes if p[:-1] in ends[context] and p}
        assert contexts.shorter(context) == next(s for s in suffixes(context) if ends[s] != ends[context])


@pytest.mark.parametrize("ranking", RANKINGS)
def test_nothing_follows_the_end_of_a_text(ranking: Any) -> None:
    contexts = Contexts(ranking)
    extended(contexts, "", "xab")
    extended(contexts, "", "cab")
    assert contexts.top("ab") == []
    assert contexts.occurrences["ab"] == 2
    assert "bc" not in contexts.occurrences


def test_a_token_counts_at_the_longest_context_that_it_followed() -> None:
    contexts = Contexts("update_exclusion")
    extended(contexts, "", "xab.yab.xab")
    assert contexts.top("xa") == [("b", 2)]
    assert contexts.top("ya") == [("b", 1)]
    assert contexts.top("a") == [("b", 2)]  # of xab and yab; the third was counted at xa


def test_a_token_counts_at_every_context_where_all_do() -> None:
    contexts = Contexts("frequency")
    extended(contexts, "", "xab.yab.xab")
    assert [contexts.top(context) for context in ("xa", "ya", "a")] == [[("b", 2)], [("b", 1)], [("b", 3)]]


def test_a_token_counts_at_so_many_states_at_most() -> None:
    contexts = Contexts("frequency")
    run = extended(contexts, "", "a" * (Tuning.MAX_COUNTED + 10))
    before = contexts.top("a"), contexts.top("aa" * 5)
    extended(contexts, run, "a")
    assert (contexts.top("a"), contexts.top("aa" * 5)) != before
    assert contexts.top("a") == before[0]


def test_the_latest_come_first_where_the_ranking_is_recency() -> None:
    contexts = Contexts("recency")
    extended(contexts, "", "".join("x" + chr(100 + i) for i in range(20)))
    assert [token for token, _ in contexts.top("x")] == [chr(100 + i) for i in range(19, 19 - Tuning.MAX_TOP, -1)]


def test_the_frequent_come_first_and_the_latest_of_the_rest() -> None:
    contexts = Contexts("frequency")
    followers = "a" * 3 + "b" * 2 + "".join(chr(200 + i) for i in range(30))
    extended(contexts, "", "".join("x" + token for token in followers))
    assert contexts.top("x")[:3] == [("a", 3), ("b", 2), (chr(229), 1)]
    assert len(contexts.top("x")) == Tuning.MAX_TOP


def test_an_end_is_that_of_the_last_time_as_the_longest_known_context() -> None:
    contexts = Contexts("update_exclusion")
    text = extended(contexts, "", "xab.yab.")
    assert contexts.extend(text, "x", 8) == ("x", 0)
    assert contexts.extend(text + "x", "a", 9) == ("xa", 1)
    assert contexts.extend(text + "xa", "z", 10) == ("", None)
    assert contexts.last_end("xa") == 9
    assert contexts.last_end("a") == 5  # as a suffix of xa it ended at 9, but xa was the longest
