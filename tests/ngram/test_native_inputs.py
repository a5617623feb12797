"""Bad input to the native module: an exception that says what was wrong, and nothing changed."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from specserve_ngram._native import Corpus, Index

if TYPE_CHECKING:
    from collections.abc import Callable

OPTIONS: dict[str, Any] = {
    "match_type": "learned", "capacity": 1000, "generations": 4, "shared": True, "min_match": 1, "max_match": 64,
    "min_breadth": 1, "max_breadth": 10, "max_depth": 64, "min_survival": 0.05,
}  # fmt: skip


def ints(*values: int) -> array[int]:
    return array("i", values)


def handles(*values: int) -> array[int]:
    return array("q", values)


@pytest.fixture
def index() -> Index:
    return Index(**OPTIONS)


@pytest.fixture
def handle(index: Index) -> int:
    return index.start("", ints(1, 2, 3, 1, 2))


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("match_type", "exact", "match_type must be learned, prob or bfs; got 'exact'"),
        ("generations", 1, r"generations must be 2\.\.15; got 1"),
        ("generations", 16, r"generations must be 2\.\.15; got 16"),
        ("capacity", 64, "capacity must be at least 65; got 64"),
        ("max_depth", 0, "max_depth must be at least 1; got 0"),
        ("max_depth", 1000, "capacity must be at least 1001; got 1000"),
        ("min_match", 0, r"min_match must be 1\.\.64; got 0"),
        ("min_match", 65, r"min_match must be 1\.\.64; got 65"),
        ("max_match", 0, "max_match must be at least 1; got 0"),
        ("min_breadth", 0, r"min_breadth must be 1\.\.10; got 0"),
        ("min_breadth", 11, r"min_breadth must be 1\.\.10; got 11"),
        ("max_breadth", 33, r"max_breadth must be 1\.\.32; got 33"),
        ("min_survival", -0.1, r"min_survival must be 0\.\.1; got -0\.1"),
        ("min_survival", 1.1, r"min_survival must be 0\.\.1; got 1\.1"),
        ("min_survival", float("nan"), r"min_survival must be 0\.\.1; got nan"),
        ("threads", 0, r"threads must be 1\.\.2; got 0"),
        ("threads", 3, r"threads must be 1\.\.2; got 3"),
    ],
)
def test_an_option_out_of_range_is_named(option: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Index(**{**OPTIONS, option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [("capacity", -1), ("capacity", 2**64), ("capacity", 10.5), ("match_type", 3), ("shared", "yes")],
)
def test_an_option_of_another_type_is_a_type_error(option: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{option}: "):
        Index(**{**OPTIONS, option: value})


def test_the_widest_and_the_narrowest_options_are_taken() -> None:
    wide: dict[str, Any] = {"min_match": 2**32 - 1, "max_match": 2**32 - 1, "max_breadth": 32, "max_depth": 2**32 - 1}
    Index(**{**OPTIONS, **wide, "capacity": 2**64 - 1, "generations": 15})
    Index(**{**OPTIONS, "capacity": 2, "generations": 2, "max_depth": 1, "max_match": 1, "max_breadth": 1})


@pytest.mark.parametrize(
    "tokens", [array("q", [1]), array("f", [1]), [1], (1,), b"abcd", None, np.zeros((2, 2), np.int32)], ids=repr
)
def test_tokens_are_a_flat_array_of_int32(index: Index, handle: int, tokens: Any) -> None:
    before = index.stats()
    calls: list[Callable[[], object]] = [
        lambda: index.start("", tokens),
        lambda: index.step(handles(handle), tokens, ints(1), ints(4)),
        lambda: index.stop(handle, tokens),
        lambda: Corpus().add(tokens),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="dtype=int32"):
            call()
    assert index.stats() == before


def test_numpy_arrays_are_taken(index: Index) -> None:
    handle = index.start("", np.array([1, 2, 3, 1, 2], np.int32))  # type: ignore[arg-type]
    (draft,) = index.step(np.array([handle]), ints(), ints(0), ints(1))  # type: ignore[arg-type]
    assert draft is not None
    assert draft[0] == (3,)


def test_negative_tokens_are_refused(index: Index, handle: int) -> None:
    before = index.stats()
    calls: list[Callable[[], object]] = [
        lambda: index.start("", ints(1, -7)),
        lambda: index.step(handles(handle), ints(1, -7), ints(2), ints(4)),
        lambda: index.stop(handle, ints(-7)),
        lambda: Corpus().add(ints(1, -7)),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="token ids are not negative; got -7"):
            call()
    assert index.stats() == before


@pytest.mark.parametrize(
    ("tokens", "counts", "limits", "message"),
    [
        (ints(1), ints(0), ints(4), "counts must add up to the number of tokens"),
        (ints(1), ints(2), ints(4), "counts must add up to the number of tokens"),
        (ints(1), ints(1, 0), ints(4), "handles and counts must have one length"),
        (ints(), ints(0), ints(), "handles and limits must have one length"),
        (ints(), ints(-1), ints(4), "counts are not negative"),
        (ints(), ints(0), ints(-4), "limits are not negative"),
    ],
)
def test_a_step_that_does_not_add_up_is_refused(
    index: Index, handle: int, tokens: Any, counts: Any, limits: Any, message: str
) -> None:
    before = index.stats()
    with pytest.raises(ValueError, match=message):
        index.step(handles(handle), tokens, counts, limits)
    assert index.stats() == before


@pytest.mark.parametrize(
    ("certain", "counts", "message"),
    [
        (ints(1), ints(2), "certain_counts must add up to the number of tokens"),
        (ints(1), ints(1, 0), "handles and certain_counts must have one length"),
        (ints(), ints(-1), "certain_counts are not negative"),
        (ints(-1), ints(1), "token ids are not negative"),
        (ints(1), None, "certain and certain_counts come together"),
        (None, ints(0), "certain and certain_counts come together"),
    ],
)
def test_certain_tokens_that_do_not_add_up_are_refused(
    index: Index, handle: int, certain: Any, counts: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        index.step(handles(handle), ints(9), ints(1), ints(4), certain, counts)
    (draft,) = index.step(handles(handle), ints(), ints(0), ints(4))
    assert draft is not None
    assert draft[0][0] == 3


def test_a_draft_begins_behind_the_tokens_that_are_certain(index: Index, handle: int) -> None:
    (draft,) = index.step(handles(handle), ints(9), ints(1), ints(4), ints(8, 1), ints(2))
    assert draft is not None
    assert draft[0][0] == 2  # what followed 1, whatever is between


def test_a_step_with_an_unknown_handle_changes_nothing(index: Index, handle: int) -> None:
    before = index.stats()
    with pytest.raises(IndexError, match="no request has the handle 77: it was never started, or was stopped"):
        index.step(handles(handle, 77), ints(9, 9), ints(1, 1), ints(4, 4))
    assert index.stats() == before
    (draft,) = index.step(handles(handle), ints(), ints(0), ints(4))
    assert draft is not None
    assert draft[0][0] == 3  # what follows 1 2, and not 1 2 9


def test_a_request_that_comes_twice_in_a_step_changes_nothing(index: Index, handle: int) -> None:
    before, other = index.stats()["tokens"], index.start("", ints())
    for _ in range(2):
        with pytest.raises(ValueError, match=f"a request comes once in a step; the handle {handle} came twice"):
            index.step(handles(handle, other, handle), ints(9, 9), ints(1, 0, 1), ints(4, 4, 4))
    assert index.stats()["tokens"] == before
    (draft,) = index.step(handles(handle), ints(), ints(0), ints(4))
    assert draft is not None
    assert draft[0][0] == 3


def test_a_request_stops_once(index: Index, handle: int) -> None:
    index.stop(handle, ints(3))
    with pytest.raises(IndexError, match=f"no request has the handle {handle}"):
        index.stop(handle, ints(3))
    with pytest.raises(IndexError, match=f"no request has the handle {handle}"):
        index.step(handles(handle), ints(), ints(0), ints(4))
    assert index.stats()["tokens"] == 6


def test_nothing_is_something(index: Index) -> None:
    """Empty batches, prompts, outputs and corpora; limit 0."""
    assert index.step(handles(), ints(), ints(), ints()) == []
    handle = index.start("", ints())
    index.add_corpus("empty", Corpus())
    assert index.step(handles(handle), ints(), ints(0), ints(9)) == [None]
    assert index.step(handles(handle), ints(1, 2, 1), ints(3), ints(0)) == [None]
    index.stop(handle, ints())
    assert not index.remove_corpus("missing")


def test_the_largest_token_and_limit_are_taken(index: Index) -> None:
    most = 2**31 - 1
    handle = index.start("", ints(most, 5, most))
    (draft,) = index.step(handles(handle), ints(), ints(0), ints(most))
    assert draft is not None
    assert draft[0][:2] == (5, most)


def test_a_corpus_is_of_the_index_s_match_type(index: Index) -> None:
    with pytest.raises(ValueError, match="the corpus was built for another match_type"):
        index.add_corpus("x", Corpus("bfs"))
    with pytest.raises(ValueError, match="match_type must be learned, prob or bfs; got 'exact'"):
        Corpus("exact")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="corpus: "):
        index.add_corpus("x", None)  # type: ignore[arg-type]
    assert index.stats()["corpora"] == 0


def test_a_corpus_that_an_index_reads_is_not_added_to(index: Index) -> None:
    corpus = Corpus()
    corpus.add(ints(1, 2, 3))
    index.add_corpus("x", corpus)
    with pytest.raises(ValueError, match="an index reads this corpus now"):
        corpus.add(ints(4))
    assert corpus.num_tokens == index.stats()["corpus_tokens"] == 3
