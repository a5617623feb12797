"""Stop strings and the text of outputs: the same however tokens are grouped, nothing leaks, nothing is lost."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from specserve.text.detokenizer import IncrementalDetokenizer
from specserve.text.stop_strings import StopStringMatcher, find_stop_string

TOKEN_TEXTS = ("a", "b", "ab", "ba", "", "aab", "c")
ids_of = st.lists(st.integers(0, len(TOKEN_TEXTS) - 1), max_size=24)
stops_of = st.lists(st.text("abc", min_size=1, max_size=5), max_size=3).map(tuple)


class TokenTexts:
    """Token i is the text TOKEN_TEXTS[i]."""

    def push(self, token_id: int) -> str:
        return TOKEN_TEXTS[token_id]


def run_engine(ids: list[int], stops: tuple[str, ...]) -> tuple[list[int], str | None]:
    """The tokens up to the completing one, as the verifier cuts them."""
    matcher = StopStringMatcher(stops, TokenTexts())
    for i, token_id in enumerate(ids):
        stop = matcher.push(token_id)
        if stop is not None:
            return ids[: i + 1], stop
    return ids, None


def group(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = sorted({0, len(ids), *(cut % (len(ids) + 1) for cut in cuts)})
    return [ids[a:b] for a, b in pairwise(edges)] or [[]]


def detokenize(ids: list[int], stops: tuple[str, ...], cuts: list[int], include: bool) -> tuple[list[str], list[int]]:
    ids, stop = run_engine(ids, stops)
    detokenizer = IncrementalDetokenizer(TokenTexts(), stops, include=include)
    texts, offsets = [], []
    groups = group(ids, cuts)
    for i, tokens in enumerate(groups):
        final = i + 1 == len(groups)
        reason = ("stop" if stop else "length") if final else None
        text, new_offsets = detokenizer.push(tokens, finish_reason=reason, stop_string=stop if final else None)
        texts.append(text)
        offsets += new_offsets
    return texts, offsets


@given(ids=ids_of, stops=stops_of, cuts=st.lists(st.integers(0, 30), max_size=6), include=st.booleans())
def test_the_text_is_the_same_however_tokens_are_grouped(
    ids: list[int], stops: tuple[str, ...], cuts: list[int], include: bool
) -> None:
    one, one_offsets = detokenize(ids, stops, [], include)
    many, many_offsets = detokenize(ids, stops, cuts, include)
    assert "".join(one) == "".join(many)
    assert one_offsets == many_offsets


@given(ids=ids_of, stops=stops_of, include=st.booleans())
def test_the_text_ends_at_the_first_stop_string(ids: list[int], stops: tuple[str, ...], include: bool) -> None:
    used, stop = run_engine(ids, stops)
    text = "".join(TOKEN_TEXTS[i] for i in used)
    result = "".join(detokenize(ids, stops, list(range(30)), include)[0])
    if stop is None:
        assert result == text
        assert not any(s in text for s in stops)
    else:
        start = min(text.find(s) for s in stops if s in text)
        assert result == text[: start + (len(stop) if include else 0)]


@given(ids=ids_of, stops=stops_of)
def test_emitted_text_is_never_taken_back(ids: list[int], stops: tuple[str, ...]) -> None:
    whole = "".join(detokenize(ids, stops, [], False)[0])
    shown = ""
    for text in detokenize(ids, stops, list(range(30)), False)[0]:
        shown += text
        assert whole.startswith(shown)


@given(ids=ids_of, stops=stops_of)
def test_the_matcher_buffers_less_than_the_longest_stop_string(ids: list[int], stops: tuple[str, ...]) -> None:
    matcher = StopStringMatcher(stops, TokenTexts())
    for token_id in ids:
        matcher.push(token_id)
        assert len(matcher._tail) <= max(map(len, stops), default=1) - 1


def test_a_stop_string_across_a_token_boundary_is_found() -> None:
    assert find_stop_string(("xyz", "yz"), "..x", "yz!") == (2, "xyz")
    assert find_stop_string(("xy",), "xy", "z") is None


def test_a_stop_token_gives_no_text_unless_asked() -> None:
    assert IncrementalDetokenizer(TokenTexts()).push([0, 1], finish_reason="stop")[0] == "a"
    assert IncrementalDetokenizer(TokenTexts(), include=True).push([0, 1], finish_reason="stop")[0] == "ab"


def test_a_stop_string_that_min_tokens_ignored_is_plain_text() -> None:
    detokenizer = IncrementalDetokenizer(TokenTexts(), ("ab",))
    assert detokenizer.push([0])[0] == ""
    assert detokenizer.push([1])[0] == "ab"
    assert detokenizer.push([2], finish_reason="stop", stop_string="ab")[0] == ""


def test_offsets_say_where_each_token_begins() -> None:
    assert IncrementalDetokenizer(TokenTexts()).push([2, 4, 0], finish_reason="length") == ("aba", [0, 2, 2])
