"""A part that goes on failing is switched off, which is counted, logged once and shown; what it was for goes on."""

from __future__ import annotations

import msgspec
import pytest
from faulty import Misbehaving, in_process, raise_something
from parts import NoAdapters, Processor, Quiet, State

from specserve.batch.drafts import likeliest_chain
from specserve.batch.request import Request
from specserve.faults import FaultLog
from specserve.guards.planner import GuardedPlanner
from specserve.speculation.first_draft import FirstDraft
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft, SpeculationParams
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

LIMIT = 3


def fail(call, good, arguments):
    raise ValueError("no")


def engine_with(toy_model, **hooks):
    return make_engine(toy_model, extra=in_process("faulty", **hooks), allow_undeclared=True, fault_limit=LIMIT).engine


def test_an_observer_is_called_no_more_and_its_metrics_still_are(toy_model, caplog):
    observer = Misbehaving(Quiet(), "observe", fail)
    engine = engine_with(toy_model, make_observer=lambda: observer)
    outcome = run_requests(engine, varied_requests(8))
    assert outcome.decided() == run(toy_model, varied_requests(8)).decided()
    assert observer.calls == LIMIT
    assert engine.metrics.faults.counts == {("faulty", "observer", "raised ValueError"): LIMIT}
    assert engine.metrics.faults.disabled == {("faulty", "observer")}
    assert caplog.text.count("Traceback") == 1
    assert "plugin faulty: its observer is switched off after 3 faults in a row" in caplog.text


def test_an_observer_that_fails_now_and_then_stays_on(toy_model):
    def every_third(call, good, arguments):
        if call % LIMIT == 0:
            raise ValueError("no")

    observer = Misbehaving(Quiet(), "observe", every_third)
    engine = engine_with(toy_model, make_observer=lambda: observer)
    run_requests(engine, varied_requests(8))
    assert observer.calls == engine.metrics.num_steps > 3 * LIMIT
    assert not engine.metrics.faults.disabled


@pytest.mark.parametrize("method", ["limits", "choose"])
def test_without_its_planner_the_engine_decodes_plainly(toy_model, method):
    requests = varied_requests(8)
    plain = plain_run(toy_model, requests)
    planner = Misbehaving(FixedWidthPlanner(8), method, fail)
    drafter = OracleDrafter(plain.tokens(), 4)
    engine = engine_with(toy_model, make_draft_planner=lambda: planner, make_drafter=lambda: drafter)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert outcome.metrics.num_draft_tokens == 0
    assert planner.calls == LIMIT
    assert len(engine.metrics.faults.disabled) == 1


def test_a_planner_that_forgets_a_request_or_its_wish_is_held_to_both(toy_model):
    class Generous(FixedWidthPlanner):
        def limits(self, requests):
            return [10**9] * len(requests)

    wishes = [{"enabled": False}, {"max_draft_tokens": 2}, {}]
    requests = [toy_request(str(i), range(1, 9), max_tokens=30, ignore_eos=True) for i in range(3)]
    requests = [
        msgspec.structs.replace(r, speculation=msgspec.convert(wish, type(r.speculation)))
        for r, wish in zip(requests, wishes, strict=True)
    ]
    plain = plain_run(toy_model, requests)
    drafter = OracleDrafter(plain.tokens(), 6)
    outcome = run_requests(
        engine_with(toy_model, make_draft_planner=lambda: Generous(32), make_drafter=lambda: drafter), requests
    )
    figures = [outcome.outputs[str(i)].steps[-1].stats for i in range(3)]
    assert outcome.decided() == plain.decided()
    assert [len(f.acceptance_histogram) for f in figures] == [0, 3, 7]


class Counting(FixedWidthPlanner):
    """Names its choice by how many draft tokens it is; `extra`: how many more than there are."""

    def __init__(self, most, extra=0):
        super().__init__(32)
        self.most, self.extra = most, extra

    def choose(self, requests, budget, base_rows):
        lengths = [0 if r.draft is None else len(r.draft.tokens) for r in requests]
        return [min(n, self.most) if not self.extra else n + self.extra for n in lengths]


def test_a_choice_may_be_a_number_of_draft_tokens(toy_model):
    requests = [toy_request(str(i), range(1, 9), max_tokens=30, ignore_eos=True) for i in range(3)]
    plain = plain_run(toy_model, requests)
    drafter = OracleDrafter(plain.tokens(), 6)
    engine = engine_with(toy_model, make_draft_planner=lambda: Counting(2), make_drafter=lambda: drafter)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    widths = {len(step.tokens) for output in outcome.outputs.values() for step in output.steps}
    assert max(widths) == 3
    assert not engine.metrics.faults.counts


@pytest.mark.parametrize("extra", [1, 10**6, -(10**6)])
def test_a_number_of_draft_tokens_that_there_are_not_is_a_fault_of_the_planner(toy_model, extra):
    requests = [toy_request(str(i), range(1, 9), max_tokens=30, ignore_eos=True) for i in range(3)]
    plain = plain_run(toy_model, requests)
    drafter = OracleDrafter(plain.tokens(), 6)
    planner = Counting(2, extra)
    engine = engine_with(toy_model, make_draft_planner=lambda: planner, make_drafter=lambda: drafter)
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert outcome.metrics.num_draft_tokens == 0
    ((_, part, reason),) = engine.metrics.faults.counts
    assert (part, "a number of draft tokens that were not proposed" in reason) == ("planner's choice", True)


class Inventive(FixedWidthPlanner):
    """Chooses drafts that no drafter proposed, whatever is left of a request."""

    def choose(self, requests, budget, base_rows):
        return [Draft(tokens=(1, 2, 3, 4, 5, 6), parents=(-1, -1, 0, 1, 2, 3)) for _ in requests]


def test_a_planners_own_drafts_end_with_the_request_and_its_wish(toy_model):
    """Two requests run up to the model's last position; one of them is not to be drafted for."""
    requests = [toy_request(name, range(1, 50), max_tokens=99, ignore_eos=True) for name in ("free", "plain")]
    requests[1] = msgspec.structs.replace(requests[1], speculation=SpeculationParams(enabled=False))
    plain = plain_run(toy_model, requests, max_model_len=64)
    extra = in_process("faulty", make_draft_planner=lambda: Inventive(32))
    extra |= in_process("drafts", make_drafter=lambda: OracleDrafter(plain.tokens(), 4))
    engine = make_engine(toy_model, extra=extra, allow_undeclared=True, max_model_len=64).engine
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert engine.metrics.num_draft_tokens > 0
    assert not engine.metrics.faults.counts
    assert outcome.outputs["plain"].steps[-1].stats.acceptance_histogram == ()


def test_a_planners_own_trees_become_chains_where_nothing_can_verify_trees():
    planner = GuardedPlanner("own", Inventive(32), FaultLog(), max_draft_tokens=32, vocab_size=9, cut=likeliest_chain)
    request = Request.admit(toy_request("r", range(4), max_tokens=5), seed=0, arrival=0.0, order=0, max_len=9)
    (draft,) = planner.choose([request], budget=32, base_rows=1)
    assert (draft.tokens, draft.parents) == ((1, 3, 5), None)


def one_after_the_other(engine, count):
    """Requests that never share a step."""
    return [
        run_requests(engine, [toy_request(f"culprit {i}", range(1, 9), max_tokens=3)]).outputs[f"culprit {i}"]
        for i in range(count)
    ]


@pytest.mark.parametrize("method", ["start", "apply", "commit"])
def test_a_processor_ends_requests_until_it_is_switched_off(toy_model, method):
    broken = Misbehaving(Processor(State, "none", None), "start", fail) if method == "start" else None
    processor = broken or Processor(State, method, fail)
    engine = engine_with(toy_model, logits_processors=lambda: [processor])
    ends = [output.finish_reason for output in one_after_the_other(engine, LIMIT + 2)]
    assert ends == ["error"] * LIMIT + ["length"] * 2
    assert engine.metrics.faults.disabled == {("faulty", "logits processor")}


def test_an_essential_processor_is_never_switched_off(toy_model):
    processor = Processor(State, "apply", fail)
    processor.essential = True
    engine = engine_with(toy_model, logits_processors=lambda: [processor])
    assert {output.finish_reason for output in one_after_the_other(engine, 2 * LIMIT)} == {"error"}
    assert not engine.metrics.faults.disabled


def test_a_request_that_ends_well_resets_the_count_of_its_processor(toy_model):
    processor = Processor(State, "apply", fail)
    engine = engine_with(toy_model, logits_processors=lambda: [processor])
    for _ in range(4):
        one_after_the_other(engine, LIMIT - 1)
        run_requests(engine, [toy_request("fine", (1, 2), max_tokens=2)])
    assert not engine.metrics.faults.disabled


def test_a_request_check_that_fails_lets_everybody_in_and_is_switched_off(toy_model):
    calls = []

    def check(request):
        calls.append(request.request_id)
        raise ValueError("no")

    requests = varied_requests(8)
    engine = engine_with(toy_model, check_request=check)
    assert run_requests(engine, requests).decided() == plain_run(toy_model, requests).decided()
    assert len(calls) == LIMIT
    assert engine.metrics.faults.disabled == {("faulty", "request check")}


def under_an_adapter(request_id):
    return msgspec.structs.replace(toy_request(request_id, range(1, 9)), adapter="tuned@1")


def test_without_its_lora_planner_only_requests_under_an_adapter_end(toy_model):
    def is_under_an_adapter(batch):
        return any(span.adapter for span in batch.spans)

    planner = Misbehaving(NoAdapters(), "plan", fail, is_under_an_adapter)
    engine = engine_with(toy_model, make_lora_planner=lambda: planner)
    base = [toy_request(str(i), range(1, 9)) for i in range(4)]
    right = run(toy_model, base).decided()
    for i in range(LIMIT + 1):  # the last time it is off
        outcome = run_requests(engine, [*base[:2], under_an_adapter(f"tuned {i}"), *base[2:]])
        assert outcome.outputs[f"tuned {i}"].finish_reason == "error"
        assert {name: decided for name, decided in outcome.decided().items() if name in right} == right
        # steps without the request pass, and reset the count
        assert not engine.metrics.faults.disabled
    for i in range(LIMIT):
        assert run_requests(engine, [under_an_adapter(f"alone {i}")]).outputs[f"alone {i}"].finish_reason == "error"
    assert engine.metrics.faults.disabled == {("faulty", "LoRA planner")}
    outcome = run_requests(engine, [*base, under_an_adapter("late")])
    assert "is switched off after too many faults" in outcome.outputs["late"].steps[-1].error
    assert {name: decided for name, decided in outcome.decided().items() if name in right} == right


def test_a_mover_of_keys_and_values_that_raises_costs_their_computation_and_no_token(toy_model):
    requests = varied_requests(24)
    plain = plain_run(toy_model, requests)
    engine = make_engine(toy_model, NoisyDrafter(plain.tokens(), p=0.7, max_width=8, vocab_size=320)).engine
    mover = Misbehaving(engine.parts.cache, "mover", raise_something).mover
    engine.parts.cache.mover = mover
    outcome = run_requests(engine, requests)
    assert outcome.decided() == plain.decided()
    assert sum(engine.metrics.faults.counts.values()) > 8
    assert outcome.metrics.num_accepted_tokens > 100


def test_nobody_is_asked_for_a_request_that_its_processor_has_ended(toy_model):
    requests = [toy_request(f"culprit {i}", range(1, 9 + i), max_tokens=20, ignore_eos=True) for i in range(4)]
    right = plain_run(toy_model, requests).tokens()
    first, second = OracleDrafter(right, 2), OracleDrafter(right, 3)
    second.name = "second"
    extra = in_process(
        "faulty", make_drafter=lambda: first, logits_processors=lambda: [Processor(State, "commit", fail)]
    )
    planner, ended = FixedWidthPlanner(8), []
    planner.composer = FirstDraft()
    planner.composer.combine = lambda request, *given: ended.append(request.finish_reason)
    extra |= in_process("other", make_drafter=lambda: second, make_draft_planner=lambda: planner)
    engine = make_engine(toy_model, extra=extra, allow_undeclared=True, fault_limit=100).engine
    outcome = run_requests(engine, requests)
    assert {output.finish_reason for output in outcome.outputs.values()} == {"error"}
    assert not any(ended)


class RaisesOnce(NoAdapters):
    """A LoRA planner, given as an object, whose first batch of several requests raises."""

    raised = False

    def plan(self, batch):
        if len(batch.spans) > 1 and not self.raised:
            self.raised = True
            raise ValueError("no")
        return super().plan(batch)


def test_a_step_that_a_lora_planner_broke_once_is_its_fault(toy_model):
    engine = engine_with(toy_model, make_lora_planner=lambda: RaisesOnce())
    requests = [under_an_adapter(str(i)) for i in range(2)]
    assert all(output.finish_reason == "length" for output in run_requests(engine, requests).outputs.values())
    assert list(engine.metrics.faults.counts) == [("faulty", "LoRA planner", "raised ValueError")]


def test_a_plan_that_is_no_plan_ends_only_the_request_under_an_adapter(toy_model):
    planner = Misbehaving(NoAdapters(), "plan", lambda *_: "rubbish")
    engine = engine_with(toy_model, make_lora_planner=lambda: planner)
    base = [toy_request(str(i), range(1, 9)) for i in range(4)]
    outcome = run_requests(engine, [*base[:2], under_an_adapter("tuned"), *base[2:]])
    assert "gave something else than a LoraPlan" in outcome.outputs["tuned"].steps[-1].error
    outcome.outputs.pop("tuned")
    assert outcome.decided() == run(toy_model, base).decided()
