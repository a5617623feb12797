"""What a planner is told of asking: what it took, of the cheapest drafter, and of each of its passes."""

from __future__ import annotations

import math

import pytest
from competing_cases import Clock, plugin

from specserve.speculation.planning import VerifyAll
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request


class Told(VerifyAll):
    """Notes what asking took."""

    def __init__(self):
        super().__init__(32)
        self.told, self.passes = [], []

    def asked(self, seconds, num_asked, pass_seconds):
        self.told.append((seconds, num_asked))
        self.passes.append(pass_seconds)


def slow(expected, name, seconds, clock):
    class Slow(OracleDrafter):
        def propose(self, *arguments):
            clock.sleep(seconds)
            return super().propose(*arguments)

    drafter = Slow(expected, 2)
    drafter.name = name
    return drafter


def test_a_planner_is_told_what_the_cheapest_drafter_takes(toy_model, monkeypatch):
    """The others are asked only where they pay for themselves: they do not make asking dearer."""
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected, planner = run(toy_model, requests).tokens(), Told()
    extra = {
        "slow": plugin(slow(expected, "slow", 0.05, clock), planner),
        "quick": plugin(slow(expected, "quick", 0.002, clock)),
    }
    assert run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens() == expected
    told = [seconds for seconds, _ in planner.told[2:]]  # at first nobody knows who is the cheapest
    assert len(told) > 5
    assert all(0.002 < seconds < 0.04 for seconds in told)
    assert {num_asked for _, num_asked in planner.told} == {1}


def test_a_planner_is_told_what_its_only_drafter_takes(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=20, ignore_eos=True)]
    expected, planner = run(toy_model, requests).tokens(), Told()
    extra = {"slow": plugin(slow(expected, "slow", 0.01, clock), planner)}
    run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert planner.told
    assert all(seconds > 0.01 for seconds, _ in planner.told)


@pytest.mark.parametrize(
    ("stated", "told"),
    [(0.25, 0.25), (0.0, 0.0), (-1.0, 0.0), (math.nan, 0.0), (math.inf, 0.0), ("long", 0.0), (None, 0.0)],
)
def test_a_planner_is_told_what_a_pass_takes_where_its_only_drafter_says_so(toy_model, stated, told):
    requests = [toy_request("a", range(1, 20), max_tokens=20, ignore_eos=True)]
    expected, planner = run(toy_model, requests).tokens(), Told()
    drafter = OracleDrafter(expected, 2)
    drafter.pass_seconds = stated
    run_requests(make_engine(toy_model, extra={"oracle": plugin(drafter, planner)}).engine, requests)
    assert set(planner.passes) == {told}


def test_of_several_drafters_no_planner_is_told_what_a_pass_takes(toy_model):
    requests = [toy_request("a", range(1, 20), max_tokens=20, ignore_eos=True)]
    expected, planner = run(toy_model, requests).tokens(), Told()
    drafters = [OracleDrafter(expected, 2), OracleDrafter(expected, 2)]
    for drafter, name in zip(drafters, ("one", "two"), strict=True):
        drafter.name, drafter.pass_seconds = name, 0.25
    extra = {"one": plugin(drafters[0], planner), "two": plugin(drafters[1])}
    run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert set(planner.passes) == {0.0}


def test_a_drafter_that_is_switched_off_is_not_taken_for_the_cheapest(toy_model, monkeypatch):
    """What the others take would then count as nothing."""
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected, planner = run(toy_model, requests).tokens(), Told()

    class Broken(OracleDrafter):
        name = "broken"

        def propose(self, *arguments):
            raise OSError("gone")

    extra = {
        "slow": plugin(slow(expected, "slow", 0.01, clock), planner),
        "broken": plugin(Broken({}, 2)),
    }
    assert run_requests(make_engine(toy_model, extra=extra).engine, requests).metrics.drafters_disabled == {"broken"}
    assert all(seconds > 0.01 for seconds, _ in planner.told[-3:])


def test_a_planner_that_fails_when_it_is_told_what_asking_takes_goes_on_without(toy_model):
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()

    class Failing(VerifyAll):
        def asked(self, seconds, num_asked, pass_seconds):
            raise OSError("gone")

    class Odd(VerifyAll):
        asked = None

    parts = []
    for planner in (Failing(32), Odd(32)):
        drafter = OracleDrafter(expected, 2)
        outcome = run_requests(make_engine(toy_model, extra={"oracle": plugin(drafter, planner)}).engine, requests)
        assert outcome.tokens() == expected
        assert outcome.metrics.num_accepted_tokens
        parts.append({part for _, part, _ in outcome.metrics.faults.counts})
    assert parts == [{"planner's learning of costs"}, set()]
