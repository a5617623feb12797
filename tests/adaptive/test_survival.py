"""How likely draft tokens are thought to survive, and what that is learned from."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given

from planning_cases import batch_of, chain, drafted_requests, with_draft
from specserve.batch.drafts import paths_of
from specserve.batch.span import ScheduledSpan
from specserve.types import Draft, SpanVerdict
from specserve_adaptive._native import Planner

GREEDY = with_draft(None)


def observed(estimates, make, truth, times=2000):
    """Feed proposals of which each draft token is right, given its parent, with probability `truth`."""
    rng = random.Random(0)
    for _ in range(times):
        draft = make()
        came = []
        for token in draft.tokens:
            came.append(token if rng.random() < truth else token + 1)
            if came[-1] != token:
                break
        estimates.observe(draft, GREEDY, came)


@pytest.mark.parametrize("truth", [0.05, 0.5, 0.95])
def test_survival_by_depth_converges_to_the_truth(truth):
    estimates, draft = Planner("fair", 0.0), Draft(tokens=(1, 2, 3), source="s")
    observed(estimates, lambda: draft, truth)
    first, second, _ = estimates.survival(draft, GREEDY)
    assert first == pytest.approx(truth, abs=0.12)
    assert second <= first
    if truth > 0.4:
        assert second / first == pytest.approx(truth, abs=0.15)


@pytest.mark.parametrize("truth", [0.1, 0.9])
def test_a_stated_survival_is_corrected_to_what_such_guesses_did(truth):
    estimates, draft = Planner("fair", 0.0), chain(0.5, 0.25)
    assert estimates.survival(draft, GREEDY) == [0.5, 0.25]
    observed(estimates, lambda: draft, truth)
    assert estimates.survival(draft, GREEDY)[0] == pytest.approx(truth, abs=0.12)


def test_only_draft_tokens_whose_ancestors_were_right_are_scored():
    """Node 3 is the child of a miss, and says nothing of its depth."""
    estimates = Planner("fair", 0.0)
    tree = Draft(tokens=(1, 2, 5, 6), parents=(-1, -1, 0, 1), source="s")
    chain_of_two = Draft(tokens=(1, 2), source="s")
    before = estimates.survival(chain_of_two, GREEDY)
    for _ in range(200):
        estimates.observe(tree, GREEDY, (1,))
    first, second = estimates.survival(chain_of_two, GREEDY)
    assert second / first == pytest.approx(before[1] / before[0], abs=0.02), "depth 2 was not decided"
    for _ in range(200):
        estimates.observe(tree, GREEDY, (1, 9))
    first, second = estimates.survival(chain_of_two, GREEDY)
    assert second / first < 0.1, "node 2 was wrong each time"


def test_sources_do_not_share_their_record():
    estimates = Planner("fair", 0.0)
    good, bad = (Draft(tokens=(1,), source=name) for name in ("good", "bad"))
    for _ in range(50):
        estimates.observe(good, GREEDY, (1,))
        estimates.observe(bad, GREEDY, (2,))
    assert estimates.survival(good, GREEDY)[0] > 0.9 > 0.1 > estimates.survival(bad, GREEDY)[0]


@given(requests=drafted_requests())
def test_survival_never_rises_along_a_path(requests):
    estimates = Planner("fair", 0.0)
    for request in requests:
        if request.draft is not None:
            estimates.observe(request.draft, GREEDY, (0, 1, 2))
    for request in requests:
        if request.draft is not None:
            survival = estimates.survival(request.draft, GREEDY)
            assert all(
                0 <= survival[p[-1]] <= (survival[p[-2]] if len(p) > 1 else 1.0) for p in paths_of(request.draft)
            )


def test_a_proposal_teaches_whether_it_was_verified_or_not():
    planner, proposed, request = Planner("fair", 0.0), Draft(tokens=(4, 5), source="s"), with_draft(None)
    planner.limits([request], 8, 1.0, 0.1, 1.0)
    batch = batch_of(msgspec.structs.replace(ScheduledSpan.of(request, 63, 1, scored=1), proposed=proposed))
    before = planner.survival(proposed, request)[0]
    planner.learn(batch.spans, [SpanVerdict((), (), None, None, None)])
    assert planner.survival(proposed, request)[0] == before, "a step that decided nothing teaches nothing"
    for _ in range(50):
        planner.learn(batch.spans, [SpanVerdict((), (4,), None, None, None)])
    assert planner.survival(proposed, request)[0] > 0.9 > before
