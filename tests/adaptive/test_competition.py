"""Several drafters at once: the best draft of each request wins, a costly drafter is asked only where it may win."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from competing_cases import Clock, Continuing, Knowing, composed_by, plugin

from specserve.batch.proposals import OpenDraft, Proposal
from specserve.types import Draft, SamplingParams
from specserve_adaptive._native import Planner
from specserve_adaptive.competition import Competition
from specserve_adaptive.drafter_record import FIRST_SECONDS, MOST_FIRST_DRAFTS, DrafterRecord
from specserve_workbench.testing.drafters import OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests


def competition(costs=None):
    """Of drafts that are all verified."""
    return Competition(Planner("fair", 0.0), costs, scores_all=True)


def run_both(model, requests, first, second):
    extra = {first.name: plugin(first, composed_by(competition())), second.name: plugin(second)}
    return run_requests(make_engine(model, extra=extra).engine, requests)


def test_two_drafters_change_nothing_and_the_right_one_wins(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = varied_requests(24)
    plain = plain_run(toy_model, requests)
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
    expected = plain_run(toy_model, requests).tokens()

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
    plain = plain_run(toy_model, requests)

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
    right = plain_run(toy_model, requests).tokens()

    class Late(OracleDrafter):
        name = "late"
        asked = 0

        def draft(self, request, limit):
            self.asked += 1
            draft = super().draft(request, limit)
            return draft if draft is None or self.asked > 2 else msgspec.structs.replace(draft, tokens=(319,))

    late, early = Late(right, 8), OracleDrafter(right, 1)
    extra = {"late": plugin(late, composed_by(competition(), 16)), "oracle": plugin(early)}
    outcome = run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert outcome.tokens() == right
    assert late.asked > 10
    assert max(len(d.tokens) for d in outcome.outputs["a"].steps) == 9


def steps_of(chosen, request, num_tokens):
    """Twenty steps that each give the request `num_tokens` tokens."""
    batch = SimpleNamespace(spans=[SimpleNamespace(request=request)], only_decodes=True)
    for _ in range(20):
        chosen.observe(batch, SimpleNamespace(spans=[SimpleNamespace(tokens=(1,) * num_tokens)]), 1.0)


def test_a_token_saves_the_less_the_more_a_step_gives_without_it():
    """What the drafter itself adds is not counted, and new requests begin as those before them ended."""
    chosen, request = competition(), SimpleNamespace(id="a", finish_reason=None)
    assert chosen.tokens_without(2.0, "a") == 1.0
    steps_of(chosen, request, 13)
    assert 10.5 < chosen.tokens_without(2.0, "a") < 11.0
    for _ in range(20):
        steps_of(chosen, request, 13)
        chosen.stop(request)
    assert not chosen.tokens_per_step
    assert 10.5 < chosen.tokens_without(2.0, "new") < 11.0


def test_single_drafts_are_learned_of_where_the_planner_does_not(toy_model):
    requests = [toy_request("a", range(1, 20), max_tokens=40, ignore_eos=True)]
    expected = plain_run(toy_model, requests).tokens()

    class Silent(OracleDrafter):
        name = "silent"

        def draft(self, request, limit):
            return None

    request, draft = SimpleNamespace(id="b", params=requests[0].params), Draft(tokens=(1, 2), source="oracle")
    after = []
    for scores_all in (True, False):
        estimates = Planner("fair", 0.0)
        planner = composed_by(Competition(estimates, None, scores_all=scores_all))
        extra = {"oracle": plugin(OracleDrafter(expected, 2), planner), "silent": plugin(Silent({}, 2))}
        assert run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens() == expected
        after.append(estimates.survival(draft, request))
    assert after[0][1] > 0.6 > after[1][1] == Planner("fair", 0.0).survival(draft, request)[1]


def test_a_costlier_drafter_is_weighed_with_the_verification_of_its_draft_tokens():
    class Costs:
        def seconds(self, rows, requests, draft_tokens=0):
            return 1.0 + 0.1 * draft_tokens

    record = DrafterRecord(0)
    record.observe_cost(0.01)
    for _ in range(4):
        record.hits.add("a", 1.0, 4)
    for costs, expected in ((None, 0.02), (Costs(), 0.82)):
        chosen = competition(costs)
        assert chosen.cost(record, 2) == 0.0, "no step was measured"
        chosen.measure_step(1.0)
        assert chosen.cost(record, 2) == pytest.approx(expected)


def test_a_drafter_whose_tokens_cost_more_to_verify_than_they_save_is_asked_now_and_then(toy_model, monkeypatch):
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=400, ignore_eos=True)]
    expected = plain_run(toy_model, requests).tokens()

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
        costs = SimpleNamespace(seconds=lambda rows, requests, n=0, each=of_token: 1e-3 + each * n)
        extra = {quick.name: plugin(quick, composed_by(competition(costs))), "second": plugin(second)}
        assert run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens() == expected
        counts.append(second.asked)
    assert counts[0] > 40
    assert counts[1] < counts[0] / 2


def test_each_drafter_is_scored_by_its_own_part(toy_model, monkeypatch):
    Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=60, ignore_eos=True)]
    expected, chosen = plain_run(toy_model, requests).tokens(), competition()
    extra = {
        "knowing": plugin(Knowing(expected, 3), composed_by(chosen)),
        "continuing": plugin(Continuing(expected, 2)),
    }
    run_requests(make_engine(toy_model, extra=extra).engine, requests)
    assert chosen.records["knowing"].hits.mean == pytest.approx(3.0, abs=0.2)
    assert chosen.records["continuing"].hits.mean == pytest.approx(2.0, abs=0.2)


def test_what_follows_forced_tokens_that_are_wrong_is_not_scored(toy_model):
    requests = varied_requests(20)
    plain, chosen = plain_run(toy_model, requests), competition()
    wrong = Knowing(plain.tokens(), 3)
    wrong.shift = 1
    extra = {"knowing": plugin(wrong, composed_by(chosen)), "continuing": plugin(Continuing(plain.tokens(), 2))}
    assert run_requests(make_engine(toy_model, extra=extra).engine, requests).decided() == plain.decided()
    assert chosen.records["knowing"].hits.mean < 0.1
    assert chosen.records["continuing"].hits.num_scored == 0


@pytest.mark.parametrize(("num_forced", "limits"), [(0, [0]), (5, [4])])
def test_what_follows_forced_tokens_is_worth_drafting_though_these_are_right(num_forced, limits):
    """From the newest token on, two right tokens add nothing to five; after these they add two."""
    chosen, record = competition(), DrafterRecord(0)
    chosen.step_seconds = 1.0
    record.observe_cost(0.01)
    request = SimpleNamespace(id="a", params=SamplingParams())
    for _ in range(4):
        record.hits.add("a", 2.0, 2)
    sure = Draft(tokens=(1, 2, 3, 4, 5), survival=(1.0,) * 5, source="knowing")
    for _ in range(200):
        chosen.estimates.observe(sure, request, sure.tokens)
    found = [[Proposal("knowing", sure)]]
    assert chosen.worthwhile(record, [OpenDraft(request, 4, found[0], num_forced)]) == limits


def test_of_a_request_that_ended_nothing_is_kept():
    chosen, request = competition(), SimpleNamespace(id="a", params=SamplingParams(), finish_reason=None)
    chosen.draft_order(["one"])
    draft = Draft(tokens=(1,), source="one")
    chosen.combine(request, [Proposal("one", draft)], 4)
    span = SimpleNamespace(request=request, draft=draft)
    batch = SimpleNamespace(spans=[span], only_decodes=True)
    chosen.observe(batch, SimpleNamespace(spans=[SimpleNamespace(tokens=(1,))]), 1.0)
    assert chosen.estimates.request_stats("a") is not None
    chosen.combine(request, [Proposal("one", draft)], 4)
    chosen.stop(request)
    assert not chosen.proposals
    assert not chosen.tokens_per_step
    assert not chosen.records["one"].hits.of_request
    assert chosen.estimates.request_stats("a") is None


def test_a_new_drafter_is_asked_until_it_has_shown_what_it_can(toy_model, monkeypatch):
    """The first text suits another one. A drafter is not given up for that, unless it is costly."""
    clock = Clock(monkeypatch)
    requests = [toy_request("a", range(1, 20), max_tokens=100, ignore_eos=True)]
    expected, calls = plain_run(toy_model, requests).tokens(), {}

    class Second(WrongDrafter):
        name, seconds, asked = "second", 0.0, 0

        def draft(self, request, limit):
            self.asked += 1
            clock.sleep(self.seconds)
            return super().draft(request, limit)

    for seconds in (0.0001, 0.001, 0.006):
        second = Second(expected, 2, TOY_VOCAB)
        second.seconds = seconds
        quick = OracleDrafter(expected, 1)
        extra = {quick.name: plugin(quick, composed_by(competition())), "second": plugin(second)}
        assert run_requests(make_engine(toy_model, extra=extra).engine, requests).tokens() == expected
        calls[seconds] = second.asked
    assert calls[0.0001] >= MOST_FIRST_DRAFTS
    assert calls[0.001] == pytest.approx(FIRST_SECONDS / 0.001, abs=2)
    assert calls[0.006] < 8
