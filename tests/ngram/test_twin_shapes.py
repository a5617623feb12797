"""The native index and its twin on texts that random ones seldom are, for every match type."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from twin.pair import Pair
from twin.workload import write

from specserve_ngram._native import Tuning

if TYPE_CHECKING:
    from collections.abc import Sequence

MATCH_TYPES = ["learned", "prob", "bfs"]
OPTIONS: dict[str, Any] = {
    "capacity": 100_000, "generations": 4, "shared": True, "min_match": 1, "max_match": 64, "min_breadth": 1,
    "max_breadth": 6, "max_depth": 20, "min_survival": 0.02,
}  # fmt: skip

pytestmark = pytest.mark.parametrize("match_type", MATCH_TYPES)


def feed(pair: Pair, prompt: Sequence[int], output: Sequence[int], namespace: str = "", limit: int = 16) -> int:
    """The output comes two tokens at a time; how many nodes were drafted meanwhile."""
    handle, num_nodes = pair.start(namespace, prompt), 0
    for at in range(0, len(output), 2):
        (draft,) = pair.step([handle], output[at : at + 2], [len(output[at : at + 2])], [limit])
        num_nodes += 0 if draft is None else len(draft[0])
    pair.stop(handle, [])
    pair.check_stats()
    return num_nodes


def test_one_token_again_and_again(match_type: Any) -> None:
    """More contexts than count a token, and more than are searched."""
    pair = Pair(match_type=match_type, **OPTIONS)
    assert feed(pair, [7] * 150, [7] * 40) > 100
    assert feed(pair, [7] * 60 + [8], [7] * 40 + [8, 7, 7]) > 100


@pytest.mark.parametrize(("others", "expected"), [(Tuning.MAX_COUNTED, 7), (Tuning.MAX_COUNTED + 1, 8)])
def test_an_occurrence_counts_at_the_longest_states_only(match_type: Any, others: int, expected: int) -> None:
    """In a run of 7, each comes once more after a single 7; MAX_COUNTED of them count there, and the first one."""
    pair = Pair(match_type=match_type, **{**OPTIONS, "max_match": 1})
    pair.stop(pair.start("", [7] * 150), [])
    for i in range(others):
        pair.stop(pair.start("", [100 + i, 7, 8]), [])
    (draft,) = pair.step([pair.start("", [9, 7])], [], [0], [1])
    assert draft is not None
    assert match_type != "prob" or draft[0] == (expected,)


def test_tokens_with_many_followers(match_type: Any) -> None:
    """After one token only at first, so that states are split that have a hash table already."""
    pair = Pair(match_type=match_type, **OPTIONS)
    wide = [5, 2, 99]
    for before in (1, 3, 1):
        wide += [token for after in range(100, 150) for token in (before, 4, 2, after, 10 + before * after % 7)]
    assert feed(pair, wide, wide[:120]) > 100
    again = [token for after in range(130, 170) for token in (9, 2, after, after % 3)]
    assert feed(pair, again, again + wide[:60]) > 100


def test_more_states_than_one_chunk_holds(match_type: Any) -> None:
    pair, random = Pair(match_type=match_type, **OPTIONS), Random(1)
    texts = [write(random, "many" if i % 3 else "few", 60, []) for i in range(90)]
    for text in texts:
        pair.stop(pair.start("", text), [])
    assert pair.check_stats()["tokens"] == 5400
    assert feed(pair, texts[5][:30], texts[5][30:] + texts[80][10:50]) > 20


def test_more_sources_than_are_matched(match_type: Any) -> None:
    pair, random = Pair(match_type=match_type, **{**OPTIONS, "capacity": 1000, "generations": 15}), Random(2)
    text = write(random, "few", 80, [])
    for name in "pqrs":
        pair.add_corpus(name, [text[20:], write(random, "few", 30, [])])
    for _ in range(20):
        pair.stop(pair.start("", write(random, "few", 70, text[:20])), [])
        feed(pair, text[:20], text[20:40])
    assert pair.check_stats()["generations"] == 15


def test_texts_do_not_run_into_each_other(match_type: Any) -> None:
    pair = Pair(match_type=match_type, **{**OPTIONS, "min_survival": 0.0})
    for text in ([1, 2, 3], [4, 5, 6]):
        pair.stop(pair.start("", text), [])
    handle = pair.start("", [9, 3])
    assert pair.step([handle], [], [0], [8]) == [None]
    (draft,) = pair.step([handle], [4], [1], [8])
    assert draft is not None
    assert draft[0] == (5, 6)


def test_what_others_write_splits_the_contexts_of_a_request_that_waits(match_type: Any) -> None:
    pair = Pair(match_type=match_type, **{**OPTIONS, "capacity": 400, "generations": 2})
    waiting = pair.start("", [*range(100, 190), 1, 2])
    other = pair.start("", list(range(300, 408)))  # closes the generation
    pair.stop(other, [5, 1, 2, 3])
    (draft,) = pair.step([waiting], [], [0], [4])  # finds its place: 1 2, which always came after 5 so far
    assert draft is not None
    assert draft[0] == (3,)
    pair.stop(pair.start("", [6, 1, 2, 4]), [])
    (draft,) = pair.step([waiting], [], [0], [4])
    assert draft is not None
    assert sorted(draft[0]) == [3, 4]


def test_a_source_that_is_new_is_joined_by_the_last_tokens(match_type: Any) -> None:
    pair = Pair(match_type=match_type, **OPTIONS)
    text = list(range(100))
    handles = [pair.start("", text[:length]) for length in (3, 30, 70, 99)]
    pair.add_corpus("x", [text, [7, 8, 9, *text[60:70], 5]])
    drafts = pair.step(handles, [], [0] * 4, [8] * 4)
    assert [draft and draft[0][0] for draft in drafts] == [3, 30, 70, 99]


def test_namespaces_do_not_see_each_other(match_type: Any) -> None:
    pair = Pair(match_type=match_type, **OPTIONS)
    text = list(range(30))
    pair.stop(pair.start("one", text), [])
    assert feed(pair, text[:10], text[10:20], "two") == 0
    assert feed(pair, text[:10], text[10:20], "one") > 20


def test_a_corpus_that_comes_during_a_request_is_used_at_once_and_one_that_goes_no_more(match_type: Any) -> None:
    pair = Pair(match_type=match_type, **{**OPTIONS, "shared": False})
    text = list(range(100, 200))
    handle = pair.start("", text[:80])
    assert pair.step([handle], [], [0], [8]) == [None]
    pair.add_corpus("x", [text])
    (draft,) = pair.step([handle], text[80:81], [1], [8])
    assert draft is not None
    assert draft[0] == tuple(text[81 : 81 + len(draft[0])])
    pair.add_corpus("x", [[*text[:85], 7, 7, 7]])  # in its place
    (draft,) = pair.step([handle], text[81:84], [3], [8])
    assert draft is not None
    assert draft[0][:2] == (text[84], 7)
    pair.remove_corpus("x")
    assert pair.step([handle], [], [0], [8]) == [None]
