"""What a planner observes of drafting: what it took, of the first drafter, and of each of its passes."""

from __future__ import annotations

import math

import pytest
from competing_cases import Clock, EveryoneProposes, plugin

from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request


class Observing(FixedWidthPlanner):
    """Notes what drafting took."""

    def __init__(self):
        super().__init__(32)
        self.observed, self.passes = [], []

    def observe_drafting(self, seconds, num_requests, pass_seconds):
        self.observed.append((seconds, num_requests))
        self.passes.append(pass_seconds)


def slow(expected, name, seconds, clock):
    class Slow(OracleDrafter):
        def propose(self, *arguments):
            clock.sleep(seconds)
            return super().propose(*arguments)

    drafter = Slow(expected, 2)
    drafter.name = name
    return drafter


def test_a_planner_observes_what_the_first_drafter_takes(toy_model, monkeypatch):
    """The others propose only where they pay for themselves: they do not make drafting dearer."""
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected, planner = plain_run(toy_model, requests).tokens(), Observing()

    planner.composer = EveryoneProposes()
    extra = {
        "quick": plugin(slow(expected, "quick", 0.002, clock), planner),
        "slow": plugin(slow(expected, "slow", 0.05, clock)),
    }
    assert run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens() == expected
    assert len(planner.observed) > 5
    assert all(0.002 < seconds < 0.04 for seconds, _ in planner.observed)
    assert {num_requests for _, num_requests in planner.observed} == {1}


def test_a_planner_observes_what_its_only_drafter_takes(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=20, ignore_eos=True)]
    expected, planner = plain_run(toy_model, requests).tokens(), Observing()
    extra = {"slow": plugin(slow(expected, "slow", 0.01, clock), planner)}
    run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert planner.observed
    assert all(seconds > 0.01 for seconds, _ in planner.observed)


@pytest.mark.parametrize(
    ("stated", "observed"),
    [(0.25, 0.25), (0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (math.inf, 0.0), ("long", 0.0), (None, 0.0)],
)
def test_a_planner_observes_what_a_pass_takes_where_its_only_drafter_says_so(toy_model, stated, observed):
    requests = [toy_request("a", range(1, 20), max_tokens=20, ignore_eos=True)]
    expected, planner = plain_run(toy_model, requests).tokens(), Observing()
    drafter = OracleDrafter(expected, 2)
    drafter.pass_seconds = stated
    run_requests(make_engine(toy_model, extra={"oracle": plugin(drafter, planner)}).engine, requests)
    assert set(planner.passes) == {observed}


def test_of_several_drafters_no_planner_observes_what_a_pass_takes(toy_model):
    requests = [toy_request("a", range(1, 20), max_tokens=20, ignore_eos=True)]
    expected, planner = plain_run(toy_model, requests).tokens(), Observing()
    drafters = [OracleDrafter(expected, 2), OracleDrafter(expected, 2)]
    for drafter, name in zip(drafters, ("one", "two"), strict=True):
        drafter.name, drafter.pass_seconds = name, 0.25
    extra = {"one": plugin(drafters[0], planner), "two": plugin(drafters[1])}
    run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert set(planner.passes) == {0.0}


def test_a_drafter_that_is_switched_off_is_not_taken_for_the_first(toy_model, monkeypatch):
    """What the others take would then count as nothing."""
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected, planner = plain_run(toy_model, requests).tokens(), Observing()

    class Broken(OracleDrafter):
        name = "broken"

        def propose(self, *arguments):
            raise OSError("gone")

    extra = {
        "broken": plugin(Broken({}, 2), planner),
        "slow": plugin(slow(expected, "slow", 0.01, clock)),
    }
    assert run_requests(make_engine(toy_model, extra=extra).engine, requests).metrics.drafters_disabled == {"broken"}
    assert all(seconds > 0.01 for seconds, _ in planner.observed[-3:])


def test_a_planner_that_fails_to_observe_drafting_goes_on_without(toy_model):
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected = plain_run(toy_model, requests).tokens()

    class Failing(FixedWidthPlanner):
        def observe_drafting(self, seconds, num_requests, pass_seconds):
            raise OSError("gone")

    extra = {"oracle": plugin(OracleDrafter(expected, 2), Failing(32))}
    outcome = run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert outcome.tokens() == expected
    assert outcome.metrics.num_accepted_tokens
    assert {part for _, part, _ in outcome.metrics.faults.counts} == {"planner's learning of costs"}
