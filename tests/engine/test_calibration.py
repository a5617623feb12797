"""How likely guesses are thought to be, and what the planner learns that from."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from planning_cases import batch_of, chain, drafted_requests, planner, with_draft

from specserve.batch.drafts import paths_of
from specserve.batch.span import Span
from specserve.speculation.calibration import Calibration
from specserve.types import Draft, SpanVerdict, Verdict

GREEDY = with_draft(None)


def observed(calibration, make, truth, times=2000):
    """Feed proposals of which each guess is right, given its parent, with probability `truth`."""
    rng = random.Random(0)
    for _ in range(times):
        draft = make()
        came = []
        for token in draft.tokens:
            came.append(token if rng.random() < truth else token + 1)
            if came[-1] != token:
                break
        calibration.observe(draft, GREEDY, came)


@pytest.mark.parametrize("truth", [0.05, 0.5, 0.95])
def test_survival_by_depth_converges_to_the_truth(truth):
    calibration, draft = Calibration(), Draft(tokens=(1, 2, 3), source="s")
    observed(calibration, lambda: draft, truth)
    first, second, _ = calibration.survival(draft, GREEDY)
    assert first == pytest.approx(truth, abs=0.12)
    assert second <= first
    if truth > 0.4:
        assert second / first == pytest.approx(truth, abs=0.15)


@pytest.mark.parametrize("truth", [0.1, 0.9])
def test_a_stated_survival_is_corrected_to_what_such_guesses_did(truth):
    calibration, draft = Calibration(), chain(0.5, 0.25)
    assert calibration.survival(draft, GREEDY) == [0.5, 0.25]
    observed(calibration, lambda: draft, truth)
    assert calibration.survival(draft, GREEDY)[0] == pytest.approx(truth, abs=0.12)


def test_only_guesses_whose_ancestors_were_right_are_scored():
    calibration = Calibration()
    tree = Draft(tokens=(1, 2, 5, 6), parents=(-1, -1, 0, 1), source="s")
    calibration.observe(tree, GREEDY, (1, 9))
    by_depth = {depth: rate.trials for (_, _, _, depth), rate in calibration.rates.items()}
    assert by_depth == pytest.approx({1: 2.0, 2: 1.0}, rel=0.01), "node 3 hangs from a miss, and says nothing"
    calibration.observe(tree, GREEDY, (1,))
    assert calibration.rates["s", 0, "depth", 2].trials == 1.0, "depth 2 was not decided this time"


def test_sources_do_not_share_their_record():
    calibration = Calibration()
    good, bad = (Draft(tokens=(1,), source=name) for name in ("good", "bad"))
    for _ in range(50):
        calibration.observe(good, GREEDY, (1,))
        calibration.observe(bad, GREEDY, (2,))
    assert calibration.survival(good, GREEDY)[0] > 0.9 > 0.1 > calibration.survival(bad, GREEDY)[0]


@given(requests=drafted_requests())
def test_survival_never_rises_along_a_path(requests):
    calibration = Calibration()
    for request in requests:
        if request.draft is not None:
            calibration.observe(request.draft, GREEDY, (0, 1, 2))
    for request in requests:
        if request.draft is not None:
            survival = calibration.survival(request.draft, GREEDY)
            assert all(
                0 <= survival[p[-1]] <= (survival[p[-2]] if len(p) > 1 else 1.0) for p in paths_of(request.draft)
            )


def test_a_proposal_teaches_whether_it_was_verified_or_not():
    learner, proposed = planner(), Draft(tokens=(4, 5), source="s")
    request = with_draft(None)
    batch = batch_of(Span(request, 63, 1, 0, 1, None, proposed))
    learner.learn(batch, Verdict([SpanVerdict((), (4,), None, None, None)]), 1.0)
    assert learner.calibration.rates["s", 0, "depth", 1].hits == 1.0
    learner.learn(batch, Verdict([SpanVerdict((), (), None, None, None)]), 1.0)
    assert learner.calibration.rates["s", 0, "depth", 1].trials == 1.0, "a step that decided nothing teaches nothing"
