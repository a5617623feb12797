"""The drafters that the replay runs, without their native parts, and how the tables compare them."""

from __future__ import annotations

from array import array

import pytest
from benchmarks.replay.ngram import NgramDrafter
from benchmarks.replay.tables import at_equal_efficiency
from benchmarks.replay.trie import TrieDrafter

from specserve_bench.replay.harness import replay
from specserve_bench.replay.stats import ReplayStats


class FakeIndex:
    """Records calls; proposes the chain 3, 4."""

    def __init__(self) -> None:
        self.calls = []

    def start(self, namespace, prompt):
        self.calls.append(("start", namespace, prompt))
        return 17

    def step(self, handles, tokens, counts, limits):
        self.calls.append(("step", list(handles), list(tokens), list(counts), list(limits)))
        return [((3, 4), None, (0.5, 0.25))] if limits[0] > 1 else [None]

    def stop(self, handle, tokens):
        self.calls.append(("stop", handle, list(tokens)))


def test_the_ngram_index_is_fed_and_asked_in_one_call():
    index = FakeIndex()
    stats = replay(NgramDrafter(index), [1, 2], [3, 4, 5, 6], 2)
    assert index.calls == [
        ("start", "", array("i", [1, 2])),
        ("step", [17], [], [0], [2]),
        ("step", [17], [3, 4, 5], [3], [2]),
        ("stop", 17, [6]),
    ]
    assert (stats.num_steps, stats.num_drafted, stats.num_accepted) == (2, 4, 2)


def test_the_trie_finds_what_the_prompt_repeats():
    text = list(range(40))
    stats = replay(TrieDrafter(), text, text, 8)
    # one step to find the place; then 8 nodes and a bonus each, of which the last needs 2
    assert stats.num_steps == 1 + 5
    assert (stats.num_drafted, stats.num_accepted) == (5 * 8, 4 * 8 + 2)


def test_the_trie_proposes_the_newest_continuation_first_and_wide_after_a_short_match():
    drafter = TrieDrafter()
    drafter.start([1, 2, 9, 8, 1, 3, 9, 7, 1])
    draft = drafter.propose(4)
    assert list(zip(draft.tokens, draft.parents, strict=True)) == [(3, -1), (2, -1), (9, 0), (9, 1)]


def test_the_trie_asks_the_longest_match_first():
    drafter = TrieDrafter()
    drafter.start([8, 1, 2, 5, 1, 3, 8, 1])
    draft = drafter.propose(5)
    assert list(zip(draft.tokens, draft.parents, strict=True)) == [(2, -1), (5, 0), (1, 1), (3, 2), (8, 3)]


def test_a_path_of_the_trie_ends_at_its_depth():
    drafter = TrieDrafter()
    drafter.start(list(range(100)))
    node, depth = drafter._root, 0
    while node:
        node, depth = next(iter(node.values())), depth + 1
    assert depth == 18


def test_equal_efficiency_is_interpolated_between_the_points_around_it():
    swept = [ReplayStats(40, 10, 60, 30), ReplayStats(30, 10, 20, 20)]  # 4.0 at 2.0 and 3.0 at 1.0
    assert at_equal_efficiency(swept, ReplayStats(20, 10, 15, 10)) == "3.50 (1.50)"
    assert at_equal_efficiency(swept, ReplayStats(20, 10, 30, 10)) == "outside the sweep"


@pytest.mark.parametrize("prompt", [[], [1], [1, 1, 1]])
def test_the_trie_takes_any_prompt(prompt):
    assert replay(TrieDrafter(), prompt, [1, 1, 1, 1], 4).num_tokens == 4
