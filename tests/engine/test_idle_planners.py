"""What planners may have besides the two methods: idle steps, and what they tell."""

from __future__ import annotations

import pytest

from specserve.engine.description import describe_planner
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import PlannerStats
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests


class Idling(FixedWidthPlanner):
    """Wants nothing twice, each time for `pause` steps, then a draft for all. Idle steps begin after plain steps."""

    def __init__(self, pause):
        super().__init__(4)
        self.length, self.is_idle = pause, False
        self.limited, self.learned, self.told = [], 0, []

    def limits(self, requests):
        self.limited.append([request.id for request in requests])
        self.is_idle = len(self.limited) % 3 > 0
        return [0] * len(requests) if self.is_idle else super().limits(requests)

    def idle_steps(self):
        return self.length

    def learn(self, batch, verdict, seconds):
        self.learned += 1

    def observe_idle(self, batch, seconds):
        assert batch.num_rows == len(batch.spans)
        assert all(each > 0.0 for each in seconds)
        self.told.append(len(seconds))


def idling_engine(toy_model, requests, pause):
    plain = plain_run(toy_model, requests)
    planner = Idling(pause)
    engine = make_engine(toy_model, OracleDrafter(plain.tokens(), 4), planner=planner).engine
    return engine, planner, plain


def test_a_planner_is_not_called_in_idle_steps_and_observes_them_afterwards(toy_model):
    requests = [toy_request("a", range(1, 9), max_tokens=60, ignore_eos=True)]
    engine, planner, plain = idling_engine(toy_model, requests, 5)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert set(planner.told) == {5}
    assert planner.learned == len(planner.limited)
    assert engine.metrics.num_steps == len(planner.limited) + sum(planner.told)
    assert engine.metrics.num_accepted_tokens > 10


def test_a_new_request_ends_idle_steps(toy_model):
    requests = [toy_request(name, range(1, 9), max_tokens=60, ignore_eos=True) for name in ("a", "b")]
    engine, planner, plain = idling_engine(toy_model, requests, 1000)
    tokens = {"a": [], "b": []}

    def step():
        for output in engine.step():
            tokens[output.request_id] += output.tokens

    engine.add(requests[0])
    for _ in range(10):
        step()
    assert planner.limited == [["a"], ["a"]], "after the prompt, and after the first plain step"
    engine.add(requests[1])
    while engine.has_work:
        step()
    assert ["a", "b"] in planner.limited
    assert tokens == plain.tokens()


def test_a_request_that_ends_ends_idle_steps(toy_model):
    requests = [toy_request(name, range(1, 9), max_tokens=n, ignore_eos=True) for name, n in (("a", 60), ("b", 10))]
    engine, planner, plain = idling_engine(toy_model, requests, 1000)
    assert run_requests(engine, requests).decided() == plain.decided()
    assert planner.limited[0] == ["a", "b"]
    assert ["a"] in planner.limited


def test_a_request_that_begins_in_the_place_of_one_that_ends_ends_idle_steps(toy_model):
    """The prefix cache leaves the second one token of its prompt to compute, so that its first step looks plain."""
    requests = [toy_request(name, range(1, 18), max_tokens=20, ignore_eos=True) for name in ("a", "b")]
    plain = plain_run(toy_model, requests)
    planner = Idling(1000)
    options = {"max_num_seqs": 1, "block_size": 16}
    engine = make_engine(toy_model, OracleDrafter(plain.tokens(), 4), planner=planner, **options).engine
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert outcome.outputs["b"].steps[0].cached_tokens == 16
    assert ["b"] in planner.limited


class Telling(FixedWidthPlanner):
    """Tells whatever it is given; an exception is raised."""

    def __init__(self, *, stats=None, described=None):
        super().__init__(8)
        self.stats, self.described = stats, described

    @staticmethod
    def give(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    def request_stats(self, request_id):
        return self.give(self.stats)

    def describe(self):
        return self.give(self.described)


def telling_engine(toy_model, requests, **answers):
    plain = plain_run(toy_model, requests)
    drafter = OracleDrafter(plain.tokens(), 4)
    return make_engine(toy_model, drafter, planner=Telling(**answers), fault_limit=3).engine, plain


def test_what_a_planner_tells_is_in_the_answer_and_in_the_description(toy_model):
    stats = PlannerStats({"verified": 3}, 1.5)
    engine, plain = telling_engine(toy_model, varied_requests(6), stats=stats, described={"mode": "loud"})
    outcome = run_requests(engine, varied_requests(6))
    assert outcome.decided() == plain.decided()
    assert all(output.steps[-1].stats.planner == stats for output in outcome.outputs.values())
    assert describe_planner(engine) == {"planner": {"mode": "loud"}}


@pytest.mark.parametrize("rubbish", [ValueError("no"), "text", {"steps": ["many"]}])
def test_stats_that_cannot_be_told_are_left_out_and_counted(toy_model, rubbish):
    engine, plain = telling_engine(toy_model, varied_requests(6), stats=rubbish)
    outcome = run_requests(engine, varied_requests(6))
    assert outcome.decided() == plain.decided()
    assert all(output.steps[-1].stats.planner is None for output in outcome.outputs.values())
    ((plugin, part, _),) = engine.metrics.faults.counts
    assert (plugin, part) == ("drafter", "planner's stats")


def test_a_description_that_raises_is_left_out(toy_model):
    engine, _ = telling_engine(toy_model, varied_requests(2), described=ValueError("no"))
    assert describe_planner(engine) == {}


@pytest.mark.parametrize("rubbish", [-1, 2.0, "many", None])
def test_idle_steps_that_are_no_number_are_counted_and_left_out(toy_model, rubbish):
    requests = [toy_request("a", range(1, 9), max_tokens=20, ignore_eos=True)]
    engine, planner, plain = idling_engine(toy_model, requests, rubbish)
    assert run_requests(engine, requests).decided() == plain.decided()
    assert not planner.told
    assert {part for _, part, _ in engine.metrics.faults.counts} == {"planner's limits"}
