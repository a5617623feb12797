"""What planners may have beside the three methods: pauses, estimates of their own, and what they tell."""

from __future__ import annotations

import pytest

from specserve.engine.description import describe_planner
from specserve.speculation.calibration import Calibration
from specserve.speculation.planning import VerifyAll
from specserve.types import PlannerFigures
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests


class Pausing(VerifyAll):
    """Wants nothing twice, each time for so many steps, then a draft for all. Pauses begin after plain steps."""

    def __init__(self, pause):
        super().__init__(4)
        self.length, self.pause = pause, 0
        self.limited, self.learned, self.told = [], 0, []

    def limits(self, requests):
        self.limited.append([request.id for request in requests])
        self.pause = self.length if len(self.limited) % 3 else 0
        return [0] * len(requests) if self.pause else super().limits(requests)

    def learn(self, batch, verdict, seconds):
        self.learned += 1

    def paused(self, batch, seconds):
        assert batch.num_rows == len(batch.spans)
        assert all(each > 0.0 for each in seconds)
        self.told.append(len(seconds))


def pausing_engine(toy_model, requests, pause):
    plain = run(toy_model, requests)
    planner = Pausing(pause)
    engine = make_engine(toy_model, OracleDrafter(plain.tokens(), 4), planner=planner).engine
    return engine, planner, plain


def test_a_planner_that_pauses_is_not_called_and_told_for_how_long(toy_model):
    requests = [toy_request("a", range(1, 9), max_tokens=60, ignore_eos=True)]
    engine, planner, plain = pausing_engine(toy_model, requests, 5)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert set(planner.told) == {5}
    assert planner.learned == len(planner.limited)
    assert engine.metrics.num_steps == len(planner.limited) + sum(planner.told)
    assert engine.metrics.num_accepted_tokens > 10


def test_a_new_request_ends_a_pause(toy_model):
    requests = [toy_request(name, range(1, 9), max_tokens=60, ignore_eos=True) for name in ("a", "b")]
    engine, planner, plain = pausing_engine(toy_model, requests, 1000)
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


def test_a_request_that_ends_ends_a_pause(toy_model):
    requests = [toy_request(name, range(1, 9), max_tokens=n, ignore_eos=True) for name, n in (("a", 60), ("b", 10))]
    engine, planner, plain = pausing_engine(toy_model, requests, 1000)
    assert run_requests(engine, requests).decided() == plain.decided()
    assert planner.limited[0] == ["a", "b"]
    assert ["a"] in planner.limited


def test_a_request_that_begins_in_the_place_of_one_that_ends_ends_a_pause(toy_model):
    """The prefix cache leaves the second one token of its prompt to compute, so that its first step looks plain."""
    requests = [toy_request(name, range(1, 18), max_tokens=20, ignore_eos=True) for name in ("a", "b")]
    plain = run(toy_model, requests)
    planner = Pausing(1000)
    options = {"max_num_seqs": 1, "block_size": 16}
    engine = make_engine(toy_model, OracleDrafter(plain.tokens(), 4), planner=planner, **options).engine
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert outcome.outputs["b"].steps[0].cached_tokens == 16
    assert ["b"] in planner.limited


class Telling(VerifyAll):
    """Tells and estimates whatever it is given; an exception is raised."""

    def __init__(self, *, figures=None, described=None, survival=None):
        super().__init__(8)
        self.figures, self.described, self.answer = figures, described, survival
        self.calibration = self

    @staticmethod
    def give(answer):
        if isinstance(answer, Exception):
            raise answer
        return answer

    def request_figures(self, request_id):
        return self.give(self.figures)

    def describe(self):
        return self.give(self.described)

    def survival(self, draft, request):
        return Calibration().survival(draft, request) if self.answer is None else self.give(self.answer)

    def observe(self, draft, request, tokens):
        pass


def telling_engine(toy_model, requests, **answers):
    plain = run(toy_model, requests)
    drafter = OracleDrafter(plain.tokens(), 4)
    return make_engine(toy_model, drafter, planner=Telling(**answers), fault_limit=3).engine, plain


def test_what_a_planner_tells_is_in_the_answer_and_in_the_description(toy_model):
    figures = PlannerFigures({"verified": 3}, 1.5)
    engine, plain = telling_engine(toy_model, varied_requests(6), figures=figures, described={"mode": "loud"})
    outcome = run_requests(engine, varied_requests(6))
    assert outcome.decided() == plain.decided()
    assert all(output.steps[-1].figures.planner == figures for output in outcome.outputs.values())
    assert describe_planner(engine) == {"planner": {"mode": "loud"}}


@pytest.mark.parametrize("rubbish", [ValueError("no"), "text", {"steps": ["many"]}])
def test_figures_that_cannot_be_told_are_left_out_and_counted(toy_model, rubbish):
    engine, plain = telling_engine(toy_model, varied_requests(6), figures=rubbish)
    outcome = run_requests(engine, varied_requests(6))
    assert outcome.decided() == plain.decided()
    assert all(output.steps[-1].figures.planner is None for output in outcome.outputs.values())
    ((plugin, part, _),) = engine.metrics.faults.counts
    assert (plugin, part) == ("drafter", "planner's figures")


def test_a_description_that_raises_is_left_out(toy_model):
    engine, _ = telling_engine(toy_model, varied_requests(2), described=ValueError("no"))
    assert describe_planner(engine) == {}


@pytest.mark.parametrize("rubbish", [ValueError("no"), [], [2.0] * 4, 3])
def test_estimates_that_are_wrong_are_replaced_and_counted(toy_model, rubbish):
    from planning_cases import with_draft

    from specserve.faults import FaultLog
    from specserve.guards.estimates import GuardedEstimates
    from specserve.types import Draft

    log, draft = FaultLog(), Draft(tokens=(1, 2, 3, 4), survival=(0.5, 0.4, 0.3, 0.2), source="s")
    estimates = GuardedEstimates("own", Telling(survival=rubbish), log)
    assert list(estimates.survival(draft, with_draft(None))) == pytest.approx([0.5, 0.4, 0.3, 0.2])
    assert [part for _, part, _ in log.counts] == ["planner's estimates"]
