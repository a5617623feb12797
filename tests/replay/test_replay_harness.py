"""The replay of drafters whose acceptance lengths are known beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from specserve_bench.replay.harness import Draft, DraftError, DrafterVariant, by_kind, replay, replay_all
from specserve_bench.replay.stats import EMPTY_BINS, Bin, ReplayStats, add_to_bins, max_calibration_error
from specserve_bench.replay.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTPUT = list(range(100, 110))
SURE = 0.95


class Scripted:
    """Proposes what `script` returns for the tokens fed so far."""

    def __init__(self, script) -> None:
        self.script, self.fed, self.prompts, self.stopped = script, [], [], 0

    def start(self, prompt: Sequence[int]) -> None:
        self.prompts.append(list(prompt))
        self.fed = []

    def propose(self, limit: int) -> Draft | None:
        return self.script(self.fed, limit)

    def feed(self, tokens: Sequence[int]) -> None:
        self.fed += tokens

    def stop(self) -> None:
        self.stopped += 1


def oracle(fed, limit):
    """The true continuation as a chain, and zeros past the end of the text."""
    tokens = [*OUTPUT, *[0] * limit][len(fed) : len(fed) + limit]
    return Draft(tokens, range(-1, limit - 1), [SURE] * limit)


def chain(*tokens, survival=()):
    return Draft(tokens, range(-1, len(tokens) - 1), survival)


def test_no_draft_is_plain_decoding():
    stats = replay(Scripted(lambda fed, limit: None), [1], OUTPUT, 8)
    assert stats.mean_acceptance_length == 1
    assert stats.num_steps == len(OUTPUT)
    assert stats.num_drafted == stats.drafted_per_accepted == 0


def test_an_oracle_is_accepted_whole_and_gets_the_bonus():
    stats = replay(Scripted(oracle), [1], OUTPUT, 4)
    assert (stats.num_steps, stats.num_drafted, stats.num_accepted) == (2, 8, 8)
    assert stats.mean_acceptance_length == 5
    assert stats.drafted_per_accepted == 1


def test_the_last_step_emits_only_what_is_left():
    drafter = Scripted(oracle)
    stats = replay(drafter, [1], OUTPUT, 6)
    assert (stats.num_tokens, stats.num_steps, stats.num_accepted) == (10, 2, 8)  # 6 + bonus, then 2 + bonus
    assert drafter.fed == OUTPUT
    assert (drafter.prompts, drafter.stopped) == ([[1]], 1)


def test_wrong_guesses_count_as_drafted_and_none_is_accepted():
    stats = replay(Scripted(lambda fed, limit: chain(1, 2)), [], OUTPUT, 2)
    assert stats.mean_acceptance_length == 1
    assert stats.drafted_per_accepted == float("inf")


def test_the_walk_takes_the_child_that_is_true():
    # 100 has the children 7 and 101; 7's child would be true if 7 were
    tree = Draft([100, 7, 101, 101, 102], [-1, 0, 0, 1, 2], ())
    stats = replay(Scripted(lambda fed, limit: None if fed else tree), [], OUTPUT, 5)
    assert (stats.num_drafted, stats.num_accepted) == (5, 3)
    assert stats.num_steps == len(OUTPUT) - 3


def test_a_true_token_under_a_false_parent_is_no_accept():
    stats = replay(Scripted(lambda fed, limit: None if fed else chain(7, 101, 102)), [], OUTPUT, 3)
    assert stats.num_accepted == 0


def test_every_node_is_compared_with_its_estimated_survival():
    # the root's first child comes true, its sibling and the false one's child do not
    tree = Draft([100, 7, 101, 102], [-1, -1, 1, 0], [0.85, 0.15, 0.12, 0.25])
    bins = replay(Scripted(lambda fed, limit: None if fed else tree), [], OUTPUT, 4).bins
    assert (bins[8].num_nodes, bins[8].num_accepted) == (1, 1)
    assert (bins[1].num_nodes, bins[1].num_accepted, bins[1].estimated) == (2, 0, pytest.approx(0.135))
    assert (bins[2].num_nodes, bins[2].num_accepted) == (1, 0)


def test_nodes_past_the_end_of_the_text_do_not_count_in_the_calibration():
    stats = replay(Scripted(oracle), [], OUTPUT, 16)
    assert stats.bins[9].num_nodes == stats.bins[9].num_accepted == len(OUTPUT)
    assert stats.num_drafted == 16


def test_an_estimate_that_is_accepted_as_often_as_estimated_has_no_error():
    bins = list(EMPTY_BINS)
    add_to_bins(bins, [(0.25, node == 0) for node in range(4)] + [(0.5, node < 2) for node in range(4)])
    assert max_calibration_error(tuple(bins)) == 0


def test_small_bins_do_not_count_in_the_calibration_error():
    bins = list(EMPTY_BINS)
    add_to_bins(bins, [(0.55, node % 2 == 0) for node in range(1000)] + [(1.0, False)])
    assert bins[9] == Bin(1, 1.0, 0)
    assert max_calibration_error(tuple(bins)) == pytest.approx(0.05)


def test_a_drafter_over_its_budget_is_refused():
    with pytest.raises(DraftError, match="proposed 3 nodes; the limit is 2"):
        replay(Scripted(lambda fed, limit: chain(1, 2, 3)), [], OUTPUT, 2)


def test_a_child_before_its_parent_is_refused():
    with pytest.raises(DraftError, match="node 0 has the parent 1"):
        replay(Scripted(lambda fed, limit: Draft([1, 2], [1, -1], ())), [], OUTPUT, 2)


def test_survivals_for_some_nodes_only_are_refused():
    with pytest.raises(DraftError, match="2 tokens came with 2 parents and 1 survivals"):
        replay(Scripted(lambda fed, limit: chain(1, 2, survival=[0.5])), [], OUTPUT, 2)


@pytest.mark.parametrize("reused", [True, False])
def test_kinds_alternate_and_a_cold_drafter_is_new_for_each_trace(reused):
    made = []

    def make():
        made.append(Scripted(oracle))
        return made[-1]

    traces = [Trace(name, name[0], [], OUTPUT) for name in ("e1", "e2", "c1", "c2", "c3")]
    replayed = list(replay_all(DrafterVariant("scripted", "", make, reused), traces, 4))
    assert [trace.name for trace, _ in replayed] == ["e1", "c1", "e2", "c2", "c3"]
    assert [drafter.stopped for drafter in made if drafter.prompts] == ([5] if reused else [1] * 5)


def test_stats_of_a_kind_are_sums_over_its_traces():
    short, long = Trace("a", "edit", [1], [5]), Trace("b", "edit", [1, 2], OUTPUT)
    found = by_kind(
        [(short, ReplayStats(1, 1, num_prompt_tokens=1)), (long, ReplayStats(10, 2, 8, 8, num_prompt_tokens=2))]
    )
    assert found == {"edit": ReplayStats(11, 3, 8, 8, num_prompt_tokens=3)}
    assert found["edit"].mean_acceptance_length == pytest.approx(11 / 3)
