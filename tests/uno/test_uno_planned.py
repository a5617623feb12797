"""Whom adaptive drafts for with uno, where a pass of the target costs what it costs: as much as a step of its rows."""

from __future__ import annotations

import time

import pytest
from uno_engines import uno_engine

from draft_adapters import BLOCK
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.step_costs import StepCosts
from specserve_workbench.testing.engines import plain_run, run_requests
from specserve_workbench.testing.requests import toy_request

OF_PASS, OF_ROW = 1.0, 0.08
POINTS = (1, 8, 64)
TOKENS = 300
CERTAIN = 50.0
"""Of a logit beside those of other tokens."""


def taken(rows):
    return OF_PASS + OF_ROW * rows


class FixedCosts:
    """A clock that nothing moves but passes of the target, those of steps and those of drafts."""

    def __init__(self, monkeypatch, engine):
        self.now, self.of_drafts = 0.0, []
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        (guard,) = engine.drafting.guards
        self.target = guard.drafter.target
        for runner, kept in ((engine.runner, []), (self.target.eager, self.of_drafts)):
            runner.forward = self.timed(runner.forward, kept)

    def timed(self, forward, kept):
        def passed(batch):
            self.now += taken(batch.num_rows)
            kept.append(taken(batch.num_rows))
            return forward(batch)

        return passed


class Watched(RankedPlanner):
    def __init__(self):
        super().__init__(32, StepCosts(POINTS, [taken(rows) for rows in POINTS]), "fair", ("uno",))
        self.told = []

    def observe_drafting(self, seconds, num_requests, pass_seconds):
        self.told.append(seconds)
        super().observe_drafting(seconds, num_requests, pass_seconds)


def a_request():
    return toy_request("r", range(3, 11), max_tokens=TOKENS, ignore_eos=True)


@pytest.fixture(scope="module")
def plain(uno_target):
    return plain_run(uno_target, [a_request()]).tokens()["r"]


def run_with(monkeypatch, target, adapter, right=()):
    """right: the tokens that the adapter says, all that the request gives; none: it says what it says."""
    planner = Watched()
    engine = uno_engine(target, adapter, planner=planner)
    costs = FixedCosts(monkeypatch, engine)
    if right:
        costs.target.logits = knowing(costs.target.logits, [*a_request().prompt_token_ids, *right])
    made = run_requests(engine, [a_request()])
    return made.tokens()["r"], costs, planner


def knowing(compute, tokens):
    def logits(rows, adapter=None):
        found = compute(rows, adapter)
        ((request, guesses),) = rows
        for place in range(1, 1 + len(guesses)):
            found[place] = 0.0
            found[place, tokens[min(len(request.tokens) + place, len(tokens) - 1)]] = CERTAIN
        return found

    return logits


def test_what_drafting_takes_is_told_as_the_pass_of_the_target_that_it_is(
    monkeypatch, uno_target, draft_adapter, plain
):
    made, costs, planner = run_with(monkeypatch, uno_target, draft_adapter, plain)
    assert made == plain
    behind_prompt, *others = costs.of_drafts
    assert planner.told == pytest.approx(others), "drafting behind prompts is told to nobody"
    assert behind_prompt == taken(BLOCK)
    assert max(planner.told) == pytest.approx(taken(BLOCK))


def test_an_adapter_that_is_right_is_asked_in_nearly_every_step(monkeypatch, uno_target, draft_adapter, plain):
    made, costs, _ = run_with(monkeypatch, uno_target, draft_adapter, plain)
    assert made == plain
    assert len(costs.of_drafts) > 0.8 * TOKENS / (BLOCK + 1)
    assert costs.now < 0.6 * TOKENS * taken(1)


def test_an_adapter_that_is_wrong_is_asked_rarely_though_its_first_token_is_right(
    monkeypatch, uno_target, draft_adapter, plain
):
    """Two passes for two tokens are slower than two steps: guesses have rows, too."""
    made, costs, _ = run_with(monkeypatch, uno_target, draft_adapter)
    assert made == plain
    assert 0 < len(costs.of_drafts) < 0.1 * TOKENS
    assert costs.now < 1.1 * TOKENS * taken(1)
