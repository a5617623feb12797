"""What a step is expected to take after its like, and after others."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from planning_cases import chain, with_draft
from specserve_adaptive import ranked
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.regimes import Regimes
from specserve_adaptive.step_costs import StepCosts


def batch(requests, draft_tokens):
    spans = tuple(SimpleNamespace(start=10) for _ in range(requests))
    return SimpleNamespace(spans=spans, num_rows=requests + draft_tokens, only_decodes=True)


def observed(regimes, draft_tokens, seconds, drafting):
    regimes.observe(batch(4, draft_tokens), seconds, drafting=drafting)
    regimes.follows_drafts = draft_tokens > 0


def machine(*, steps):
    """A plain step takes 1, 4 draft tokens 0.4 more; the first step of its kind takes 0.3 longer. Drafters draft
    where drafts are verified, and once more."""
    regimes = Regimes(StepCosts([1, 64], [0.9, 2.0]))
    before = 0
    for draft_tokens in steps:
        seconds = 1.0 + 0.1 * draft_tokens + 0.3 * ((draft_tokens > 0) != (before > 0))
        observed(regimes, draft_tokens, seconds, drafting=draft_tokens > 0 or before > 0)
        before = draft_tokens
    return regimes


def test_a_first_step_with_draft_tokens_is_priced_by_itself():
    regimes = machine(steps=[*[0] * 20, *([0, 0, 0, 4] * 60), 0])
    assert not regimes.follows_drafts
    plain, *drafted = regimes.by_draft_tokens(4, 4, 8)
    assert regimes.costs.seconds(4, 4) == pytest.approx(1.0, abs=0.05)
    assert plain == pytest.approx(1.3, abs=0.05)
    assert drafted[3] == pytest.approx(1.7, abs=0.1)
    regimes.follows_drafts = True
    assert regimes.by_draft_tokens(4, 4, 8)[4] < drafted[3] - 0.2, "no such step was seen: they are taken for cheaper"


def test_a_plain_step_between_drafts_is_priced_by_itself():
    regimes = machine(steps=[*[0] * 20, *([4, 4, 4, 4, 0] * 60), 4])
    assert regimes.follows_drafts
    assert regimes.by_draft_tokens(4, 4, 8)[0] == pytest.approx(1.3, abs=0.1)
    assert regimes.costs.seconds(4, 4) == pytest.approx(1.0, abs=0.1)


def test_prices_never_fall_with_more_draft_tokens():
    regimes = machine(steps=[*[0] * 20, *([4, 0] * 60), 4])
    for follows in (True, False):
        regimes.follows_drafts = follows
        prices = regimes.by_draft_tokens(4, 4, 32)
        assert prices == sorted(prices)


def test_what_never_follows_another_kind_is_priced_as_the_table_learned_it():
    regimes = machine(steps=[0] * 50)
    assert regimes.extra_seconds(4, drafts=True) == 0.0
    assert regimes.by_draft_tokens(4, 4, 4) == regimes.costs.by_draft_tokens(4, 4, 4)


def test_prompts_are_not_taken_for_draft_tokens():
    regimes = machine(steps=[*[0] * 20, *([0, 4] * 40)])
    before = regimes.by_draft_tokens(4, 4, 8), dict(regimes.extra)
    prompt = batch(4, 500)
    prompt.only_decodes = False
    for follows in (False, True):
        regimes.follows_drafts = follows
        regimes.observe(prompt, 40.0, drafting=True)
    assert (regimes.by_draft_tokens(4, 4, 8), regimes.extra) == before


def test_steps_of_a_pause_tell_what_a_plain_step_takes():
    planner = RankedPlanner(8, StepCosts([1, 64], [0.9, 2.0]), "fair", ("simulated",))
    for _ in range(50):
        planner.observe_idle(batch(4, 0), [1.5, 1.5, 9.0])
    assert planner.costs.seconds(4, 4) == pytest.approx(1.5, rel=0.01)
    assert planner.num_steps == 150


def test_the_rows_of_a_neighbours_prompt_do_not_count_as_draft_tokens_of_a_request():
    planner = RankedPlanner(8, StepCosts([1, 64], [0.9, 2.0]), "fair", ("simulated",))
    spans = tuple(SimpleNamespace(request=SimpleNamespace(id=str(i)), drafted=d) for i, d in enumerate((0, 2, 4)))
    for _ in range(100):
        step = SimpleNamespace(spans=spans, num_rows=3 + 6 + 500, only_decodes=False)
        planner.learn(step, SimpleNamespace(spans=[None] * 3), 1.0)
    assert planner.tokens_per_draft == pytest.approx(3.0, rel=0.01)


@pytest.mark.parametrize(("drafting", "is_charged"), [(False, False), (True, True)])
def test_learning_of_plain_steps_is_not_charged_to_the_next_draft(drafting, is_charged):
    planner = RankedPlanner(8, StepCosts([1, 64], [0.9, 2.0]), "fair", ("simulated",))
    planner.drafted_before = drafting
    spans = (SimpleNamespace(request=SimpleNamespace(id="a"), drafted=0, start=10),)
    step = SimpleNamespace(spans=spans, num_rows=1, only_decodes=True)
    planner.learn(step, SimpleNamespace(spans=[None]), 1.0)
    assert (planner.own_seconds > 0.0) == is_charged


def test_what_steps_with_prompts_took_is_not_charged_to_the_drafts_after_them(monkeypatch):
    """Drafting is not timed in them. What it seems to take decides whether anybody is drafted for."""
    clock = itertools.count()
    monkeypatch.setattr(ranked, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))
    planner = RankedPlanner(8, StepCosts([1, 64], [0.9, 2.0]), "fair", ("simulated",))
    span = SimpleNamespace(request=SimpleNamespace(id="a"), drafted=2, start=10)
    prompts = SimpleNamespace(spans=(span,), num_rows=500, only_decodes=False)
    for _ in range(40):
        planner.choose([with_draft(chain(0.9, 0.8))], 8, 1)
        planner.learn(prompts, SimpleNamespace(spans=[None]), 1.0)
    planner.choose([with_draft(chain(0.9, 0.8))], 8, 1)
    assert planner.own_seconds == 2.0, "of the last learning and of the choice after it"


def test_prices_follow_the_first_step_of_as_many_requests():
    """The table was measured with one request, and says little of many."""
    planner = RankedPlanner(8, StepCosts([1, 64], [0.5, 2.0]), "fair", ("simulated",))
    requests = [with_draft(None, name=f"r{i}") for i in range(32)]
    planner.limits(requests)
    assert planner.prices[2] == pytest.approx(planner.costs.table_at(32))
    planner.costs.observe(batch(32, 0), 7.0)
    planner.limits(requests)
    assert planner.prices[2] == pytest.approx(7.0)
    planner.costs.observe(batch(32, 0), 8.0)
    planner.limits(requests)
    assert planner.prices[2] == pytest.approx(7.0), "from then on now and then"
