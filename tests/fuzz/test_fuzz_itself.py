"""The fuzzer finds what it is for: faults that are planted here. A run that reaches nothing does not look clean."""

from __future__ import annotations

import itertools

import pytest

from fuzz.campaign import Campaign
from fuzz.coverage import expected_here, missed
from fuzz.drawing import plan_of
from fuzz.minimise import minimise, run_briefly
from fuzz.plans import changed, load, save
from fuzz.trial import run_trial
from specserve.engine.verifier import DraftWalk
from specserve.kv.blocks import BlockPool
from specserve.protocols import BlocksRemoved
from specserve.sampling.sampler import TorchSampler
from specserve_kv_events.observers import PublishingObserver

MOST_TRIALS = 60


def first_failure(seed, kind=""):
    for number in range(MOST_TRIALS):
        plan = plan_of(seed, number)
        if plan.engine.kernels == "torch" and not plan.model.is_demo:
            outcome = run_trial(changed(plan, transformers=False), limit_seconds=60)
            if outcome.failure is not None and kind in outcome.failure.kind:
                return outcome
    pytest.fail(f"{MOST_TRIALS} trials found nothing")


@pytest.fixture
def neighbours_matter(monkeypatch):
    """The first of several rows that are sampled together gets the next token."""
    right = TorchSampler.target_tokens

    def wrong(self, logits, rows):
        tokens = right(self, logits, rows)
        return [(tokens[0] + 1) % logits.shape[1], *tokens[1:]] if len(rows) > 1 else tokens

    monkeypatch.setattr(TorchSampler, "target_tokens", wrong)


@pytest.mark.usefixtures("neighbours_matter")
def test_a_token_that_depends_on_neighbours_is_found_made_small_saved_and_replayed(tmp_path, monkeypatch):
    found = first_failure(seed=16, kind="an answer differs")
    trials = itertools.count()

    def run_some(plan):
        return run_briefly(plan) if next(trials) < 20 else found._replace(failure=None)

    smallest = minimise(found, seconds=300, run=run_some)
    assert smallest.failure.kind == found.failure.kind == "an answer differs"
    assert len(smallest.plan.requests) <= 2 <= len(found.plan.requests)
    assert smallest.plan.adapters == smallest.plan.engine.drafters == ()
    saved = load(save(smallest.plan, tmp_path / "case.json"))
    assert saved == smallest.plan
    assert run_trial(saved).failure.kind == "an answer differs"
    monkeypatch.undo()
    assert run_trial(saved).failure is None


def test_a_verifier_that_accepts_wrong_guesses_is_found(monkeypatch):
    def accept(self, token):
        node = self.node + 1
        if self.children is not None or node == len(self.drafted):
            self.tokens.append(token)
            return False
        self.tokens.append(self.drafted[node])
        self.path.append(node)
        self.node = node
        return True

    monkeypatch.setattr(DraftWalk, "advance", accept)
    assert first_failure(seed=12, kind="an answer differs")


def test_a_block_that_is_never_given_back_is_found(monkeypatch):
    right = BlockPool.release
    monkeypatch.setattr(BlockPool, "release", lambda self, blocks: right(self, blocks[1:]))
    assert first_failure(seed=13, kind="blocks")


def test_an_eviction_that_is_not_published_is_found(monkeypatch):
    right = PublishingObserver.changed

    def changed_but_not_removed(self, changes):
        right(self, [change for change in changes if not isinstance(change, BlocksRemoved)])

    monkeypatch.setattr(PublishingObserver, "changed", changed_but_not_removed)
    assert first_failure(seed=12, kind="a subscriber knows other blocks")


def test_a_campaign_that_accepted_no_guess_does_not_pass(tmp_path):
    told = []
    campaign = Campaign(seed=1, folder=tmp_path, say=told.append)
    campaign.trials = 1000
    campaign.kinds.update(dict.fromkeys(expected_here(), 100))
    assert campaign.passed()
    del campaign.kinds["accepted from ngram"]
    assert not campaign.passed()
    assert told[-1].endswith("these should have been reached: accepted from ngram")


def test_a_run_that_reaches_nothing_fails_once_it_is_long_enough_to_tell():
    expected = {"often": 0.5, "seldom": 0.01}
    assert missed({}, 10, expected) == []
    assert missed({}, 20, expected) == ["often"]
    assert missed({}, 1400, expected) == ["often", "seldom"]
    assert missed({"often": 1, "seldom": 1}, 1400, expected) == []


def test_a_seed_and_a_number_are_one_plan(tmp_path):
    assert plan_of(1, 5) == plan_of(1, 5) != plan_of(1, 6)
    first, second = run_trial(plan_of(1, 5)), run_trial(plan_of(1, 5))
    assert first.plan == second.plan
    assert first.plan.requests
    assert run_trial(load(save(first.plan, tmp_path / "case.json"))).plan == first.plan
