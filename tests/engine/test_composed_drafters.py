"""Several drafters at once: the best draft of each request wins, a costly drafter is asked only where it may win."""

from __future__ import annotations

import math
from types import SimpleNamespace

import msgspec
import pytest
from competing_cases import Clock, plugin

from specserve.engine.competing import Competition
from specserve.speculation.calibration import Calibration
from specserve.speculation.hit_history import HitHistory
from specserve.speculation.planning import VerifyAll
from specserve_workbench.testing.drafters import OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests


def run_both(model, requests, first, second):
    extra = {first.name: plugin(first, VerifyAll(32)), second.name: plugin(second)}
    return run_requests(make_engine(model, extra=extra).engine, requests)


def test_two_drafters_change_nothing_and_the_right_one_wins(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = varied_requests(24)
    plain = run(toy_model, requests)
    expected = plain.tokens()

    class Wrong(WrongDrafter):
        def draft(self, request, limit):
            clock.sleep(0.0002)
            return super().draft(request, limit)

    both = run_both(toy_model, requests, Wrong(expected, 4, TOY_VOCAB), OracleDrafter(expected, 4))
    assert both.decided() == plain.decided()
    # the first drafts of both look alike; once scored, the wrong drafter's are expected to gain nothing
    assert both.metrics.num_accepted_tokens / both.metrics.num_draft_tokens > 0.6


def test_a_costly_drafter_is_skipped_where_a_cheap_draft_suffices(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=200, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()

    class Costly(OracleDrafter):
        name = "costly"
        calls = 0

        def draft(self, request, limit):
            self.calls += 1
            clock.sleep(0.005)
            return super().draft(request, limit)

    costly, cheap = Costly(expected, 2), OracleDrafter(expected, 6)
    run_both(toy_model, requests, costly, cheap)
    assert 0 < costly.calls < 8  # of about 30 steps: at first, and now and then


def test_a_faulty_drafter_does_not_take_its_neighbour_down(toy_model):
    requests = varied_requests(12)
    plain = run(toy_model, requests)

    class Broken(OracleDrafter):
        name = "broken"

        def propose(self, *arguments):
            raise OSError("gone")

    both = run_both(toy_model, requests, Broken({}, 2), OracleDrafter(plain.tokens(), 4))
    assert both.decided() == plain.decided()
    assert both.metrics.drafters_disabled == {"broken"}
    assert both.metrics.num_accepted_tokens > 0


def test_a_drafter_that_missed_at_first_is_asked_again_now_and_then(toy_model, monkeypatch):
    """Beside one that is always a little right, it would never get the chance to show that it is better by now."""
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=300, ignore_eos=True)]
    right = run(toy_model, requests).tokens()

    class Late(OracleDrafter):
        name = "late"
        asked = 0

        def draft(self, request, limit):
            self.asked += 1
            draft = super().draft(request, limit)
            return draft if draft is None or self.asked > 2 else msgspec.structs.replace(draft, tokens=(319,))

    late, early = Late(right, 8), OracleDrafter(right, 1)
    extra = {"late": plugin(late, VerifyAll(16)), "oracle": plugin(early)}
    outcome = run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert outcome.tokens() == right
    assert late.asked > 10
    assert max(len(d.tokens) for d in outcome.outputs["a"].steps) == 9


def paced(competition, request, num_tokens):
    """Twenty steps that each give the request so many tokens."""
    batch = SimpleNamespace(spans=[SimpleNamespace(request=request)], only_decodes=True)
    for _ in range(20):
        competition.observe(batch, SimpleNamespace(spans=[SimpleNamespace(tokens=(1,) * num_tokens)]), 1.0)


def test_a_token_saves_the_less_the_more_a_step_gives_without_it():
    """What the drafter itself adds is not counted, and new requests begin as those before them ended."""
    competition, request = (
        Competition(Calibration(), None, scores_all=True),
        SimpleNamespace(id="a", finish_reason=None),
    )
    assert competition.pace_without(2.0, "a") == 1.0
    paced(competition, request, 13)
    assert 10.5 < competition.pace_without(2.0, "a") < 11.0
    for _ in range(20):
        paced(competition, request, 13)
        competition.stop(request)
    assert not competition.pace
    assert 10.5 < competition.pace_without(2.0, "new") < 11.0


def test_where_the_planner_is_a_plugins_single_drafts_are_learned_of_too(toy_model):
    """The default planner learns of them itself, from the calibration that it shares."""
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()

    class Silent(OracleDrafter):
        name = "silent"

        def draft(self, request, limit):
            return None

    for planner in (VerifyAll(32), None):
        extra = {"oracle": plugin(OracleDrafter(expected, 2), planner), "silent": plugin(Silent({}, 2))}
        engine = make_engine(toy_model, extra=extra).engine
        assert run_requests(engine, requests).tokens() == expected
        rates = engine.drafting.competition.calibration.rates
        assert {source for source, *_ in rates} == {"oracle"}
        assert all(rate.hits == rate.trials for rate in rates.values())


def test_a_costlier_drafter_is_weighed_with_the_verification_of_its_draft_tokens():
    class Costs:
        def seconds(self, rows, requests, guesses=0):
            return 1.0 + 0.1 * guesses

    hits = HitHistory()
    for _ in range(4):
        hits.add("a", 1.0, 4)
    guard = SimpleNamespace(seconds_per_draft=0.01, hits=hits)
    for costs, expected in ((None, 0.02), (Costs(), 0.82)):
        competition = Competition(Calibration(), costs, scores_all=True)
        assert competition.cost(guard, 2) == 0.0, "no step was measured"
        competition.measure_step(1.0)
        assert competition.cost(guard, 2) == pytest.approx(expected)


def test_a_drafter_whose_tokens_cost_more_to_verify_than_they_save_is_asked_now_and_then(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=200, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()

    class Priced(VerifyAll):
        def __init__(self, of_token):
            super().__init__(32)
            self.costs = SimpleNamespace(seconds=lambda rows, requests, guesses=0: 1e-3 + of_token * guesses)

    class Second(OracleDrafter):
        name = "second"
        asked = 0

        def draft(self, request, limit):
            self.asked += 1
            clock.sleep(0.0005)
            return super().draft(request, limit)

    counts = []
    for of_token in (0.0, 10.0):
        second, quick = Second(expected, 2), WrongDrafter(expected, 1, TOY_VOCAB)
        extra = {quick.name: plugin(quick, Priced(of_token)), "second": plugin(second)}
        assert run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens() == expected
        counts.append(second.asked)
    assert counts[0] > 40
    assert counts[1] < counts[0] / 2


@pytest.mark.parametrize("answer", [-1.0, math.nan, math.inf, "long", None, OSError("gone")])
def test_a_planner_whose_step_costs_fail_is_used_without_them(toy_model, answer):
    requests = [toy_request("a", range(1, 20), max_tokens=60, ignore_eos=True)]
    expected = run(toy_model, requests).tokens()

    class Failing(VerifyAll):
        def __init__(self):
            super().__init__(32)
            self.costs = self

        def seconds(self, rows, requests, guesses=0):
            if isinstance(answer, Exception):
                raise answer
            return answer

    first, second = OracleDrafter(expected, 2), OracleDrafter(expected, 2)
    second.name = "second"
    extra = {first.name: plugin(first, Failing()), "second": plugin(second)}
    outcome = run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert outcome.tokens() == expected
    assert outcome.metrics.num_accepted_tokens
    assert {part for _, part, _ in outcome.metrics.faults.counts} == {"planner's step costs"}
