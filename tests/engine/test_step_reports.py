"""Requests that ask are told what each of their steps drafted and what became of it; the sums are those of the metrics,
and asking changes nothing."""

from __future__ import annotations

import time

import msgspec
import pytest

from specserve.batch.drafts import ROOT, children_of, sources_of
from specserve.engine import step_reports
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve.types import Draft, PlannerStats, SpeculationParams
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter, ScriptedDrafter, WrongDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

ASKING = SpeculationParams(return_steps=True)


def asking(requests):
    return [
        msgspec.structs.replace(each, speculation=msgspec.structs.replace(each.speculation, return_steps=True))
        for each in requests
    ]


def told(run, request_id="a"):
    return [step for output in run.outputs[request_id].steps for step in output.steps]


def noisy(tokens):
    return NoisyDrafter(tokens, p=0.7, max_width=6, vocab_size=TOY_VOCAB)


def test_steps_add_up_to_the_tokens_and_to_the_metrics(toy_model):
    requests = varied_requests(32)
    plain = plain_run(toy_model, requests)
    served = run(toy_model, asking(requests), noisy(plain.tokens()), max_num_seqs=32)
    assert served.decided() == plain.decided()
    steps = [step for id in served.outputs for step in told(served, id)]
    drafts = [step.draft for step in steps if step.draft is not None]
    assert sum(len(draft.tokens) for draft in drafts) == served.metrics.num_draft_tokens > 0
    assert sum(len(step.path) for step in steps) == served.metrics.num_accepted_tokens > 0
    assert len(drafts) == served.metrics.num_drafts
    assert {name for draft in drafts for name in sources_of(draft)} == {"noisy"}
    assert {step.stopped for step in steps} == {"rejected", "draft_ended", "no_draft", "finished"}
    for output in served.outputs.values():
        for each in output.steps:
            assert [step.num_tokens for step in each.steps] == ([len(each.tokens)] if each.tokens else [])


def test_each_accepted_node_has_the_token_that_the_step_added(toy_model):
    requests = varied_requests(16)
    tokens = plain_run(toy_model, requests).tokens()
    served = run(toy_model, asking(requests), noisy(tokens))
    seen = set()
    for output in (one for each in served.outputs.values() for one in each.steps):
        for step in output.steps:
            if step.draft is None:
                continue
            children, last = children_of(step.draft), step.path[-1] if step.path else ROOT
            assert [step.draft.tokens[node] for node in step.path] == list(output.tokens[: len(step.path)])
            expected = "rejected" if last in children else "draft_ended"
            assert step.stopped == ("finished" if len(output.tokens) == len(step.path) else expected)
            seen.add(step.stopped)
            if step.stopped == "rejected":
                assert output.tokens[-1] not in children[last]
    assert seen == {"rejected", "draft_ended", "finished"}


def test_nothing_is_told_or_made_for_requests_that_do_not_ask(toy_model, monkeypatch):
    requests = varied_requests(8)
    tokens = plain_run(toy_model, requests).tokens()
    served = run(toy_model, [*asking(requests[:1]), *requests[1:]], noisy(tokens))
    assert told(served, requests[0].request_id)
    assert not [step for request in requests[1:] for step in told(served, request.request_id)]
    monkeypatch.setattr(step_reports, "StepReports", None)
    assert run(toy_model, requests, noisy(tokens)).tokens() == tokens


def test_nobody_follows_any_more_when_those_that_asked_have_ended(toy_model):
    requests = asking(varied_requests(8))
    engine = make_engine(toy_model, noisy(plain_run(toy_model, requests).tokens())).engine
    for request in requests:
        engine.add(request)
    assert engine.drafting.num_followers == len(requests)
    engine.step()
    for request in requests[:3]:
        engine.abort(request.request_id)
    while engine.has_work:
        engine.step()
    assert (engine.drafting.num_followers, engine.drafting.wanted) == (0, {})


REQUEST = toy_request("a", (1, 2, 3), max_tokens=12, ignore_eos=True, speculation=ASKING)
OFF = {"speculation": SpeculationParams(enabled=False, return_steps=True)}
NONE = {"speculation": SpeculationParams(max_draft_tokens=0, return_steps=True)}


class Keeping(FixedWidthPlanner):
    """Wants eight draft tokens of each request and keeps as many of them as it is told; with a word for it."""

    word = None

    def __init__(self, kept, wanted=8):
        super().__init__(8)
        self.kept, self.wanted, self.steps = kept, wanted, {}

    def limits(self, requests):
        return [self.wanted] * len(requests)

    def choose(self, requests, budget, base_rows):
        return [request.draft and min(self.kept, budget) for request in requests]

    def learn(self, batch, verdict, seconds):
        if self.word:
            self.steps = {"other": 1, self.word: self.steps.get(self.word, 0) + 1}

    def request_stats(self, request_id):
        return PlannerStats(dict(self.steps))


class Decided(Keeping):
    word = "too dear"


@pytest.mark.parametrize(
    ("request_", "width", "planner", "stopped", "reason"),
    [
        (REQUEST, 4, None, "draft_ended", None),
        (REQUEST, 4, Keeping(2), "draft_ended", "2 of 4 proposed draft tokens were verified"),
        (REQUEST, 4, Keeping(0), "no_draft", "none of 4 proposed draft tokens was verified"),
        (REQUEST, 4, Decided(0), "no_draft", "none of 4 proposed draft tokens was verified: too dear"),
        (REQUEST, 4, Keeping(0, 0), "no_draft", "the planner wanted no draft"),
        (REQUEST, 4, Decided(0, 0), "no_draft", "the planner wanted no draft: too dear"),
        (REQUEST, 0, Decided(0), "no_draft", "no draft came from oracle"),
        (msgspec.structs.replace(REQUEST, **OFF), 4, None, "no_draft", "the request switches speculation off"),
        (msgspec.structs.replace(REQUEST, **NONE), 4, None, "no_draft", "the request allows no draft tokens"),
    ],
)
def test_it_says_why_no_more_was_verified_or_accepted(toy_model, request_, width, planner, stopped, reason):
    outputs = plain_run(toy_model, [REQUEST]).tokens()
    served = run(toy_model, [request_], OracleDrafter(outputs, width), planner=planner)
    first, second, *_ = told(served)
    assert (first.draft, first.stopped, first.reason) == (None, "no_draft", "the step computed the prompt")
    assert (second.stopped, second.reason) == (stopped, reason)


def test_a_step_without_drafters_or_with_none_left_says_so(toy_model):
    class Faulty(ScriptedDrafter):
        name = "faulty"

        def draft(self, request, limit):
            raise ZeroDivisionError

    assert {step.reason for step in told(run(toy_model, [REQUEST]))[1:]} == {"no drafter is enabled"}
    served = told(run(toy_model, [REQUEST], Faulty({}), draft_fault_limit=3))
    reasons = [step.reason for step in served]
    assert reasons[1:3] == ["no draft came from faulty"] * 2
    assert reasons[3:-1] == ["every drafter is switched off after faults"] * 8
    assert reasons[-1] == "the request needs one token more at most"


def test_a_wrong_draft_is_rejected_and_a_stop_token_finishes_in_its_middle(toy_model):
    tokens = plain_run(toy_model, [REQUEST]).tokens()
    wrong = told(run(toy_model, [REQUEST], WrongDrafter(tokens, 3, TOY_VOCAB)))
    assert [(step.stopped, step.path, step.num_tokens) for step in wrong[1:-1]] == [("rejected", (), 1)] * 10
    place = next(i for i, token in enumerate(tokens["a"]) if i > 1 and token not in tokens["a"][:i])
    stopping = msgspec.structs.replace(
        REQUEST, params=msgspec.structs.replace(REQUEST.params, stop_token_ids=(tokens["a"][place],))
    )
    _, last = told(run(toy_model, [stopping], OracleDrafter(tokens, 8)))
    assert (last.stopped, last.num_tokens, len(last.draft.tokens)) == ("finished", place, 8)
    assert len(last.path) == place


def test_a_request_that_was_preempted_is_told_what_was_computed_again(toy_model):
    requests = [
        toy_request(f"r{i}", range(5 + i, 25 + i), max_tokens=60, ignore_eos=True, speculation=ASKING) for i in range(4)
    ]
    tokens = plain_run(toy_model, requests).tokens()
    served = run(toy_model, requests, OracleDrafter(tokens, 3), kv_memory="0.1M", prefix_cache=False, max_num_seqs=4)
    assert served.tokens() == tokens
    assert served.metrics.num_preemptions > 0
    reasons = [step.reason for id in served.outputs for step in told(served, id)]
    assert "the step computed earlier tokens again" in reasons
    assert sum(len(step.path) for id in served.outputs for step in told(served, id)) == (
        served.metrics.num_accepted_tokens
    )


def test_a_draft_whose_verification_raises_is_told_as_not_verified(toy_model):
    tokens = plain_run(toy_model, [REQUEST]).tokens()
    engine = make_engine(toy_model, OracleDrafter(tokens, 4)).engine
    compute = engine.isolation.compute

    def raising(spans):
        if any(span.drafted for span in spans):
            raise ValueError("a kernel")
        return compute(spans)

    engine.isolation.compute = raising
    served = run_requests(engine, [REQUEST])
    assert served.tokens() == tokens
    assert told(served)[1].reason == "none of 4 proposed draft tokens was verified"


def test_outputs_that_wait_for_their_reader_keep_their_steps_in_order(toy_model):
    tokens = plain_run(toy_model, [REQUEST]).tokens()
    first, *others = run(toy_model, [REQUEST], OracleDrafter(tokens, 2)).outputs["a"].steps
    merged = first
    for output in others:
        merged = merged.merge(output)
    assert merged.tokens == tuple(tokens["a"])
    assert merged.steps == tuple(step for output in (first, *others) for step in output.steps)
    assert sum(step.num_tokens for step in merged.steps) == len(tokens["a"])


def test_what_a_step_took_is_all_of_it(toy_model):
    class Slow(OracleDrafter):
        def draft(self, request, limit):
            time.sleep(0.03)
            return super().draft(request, limit)

    tokens = plain_run(toy_model, [REQUEST]).tokens()
    steps = told(run(toy_model, [REQUEST], Slow(tokens, 1)))
    assert all(0.03 < step.seconds < 10 for step in steps[:-2])
    assert steps[-1].seconds > 0


def test_a_tree_is_told_with_the_estimates_of_its_drafter(toy_model):
    tokens = plain_run(toy_model, [REQUEST]).tokens()["a"]

    class Trees(ScriptedDrafter):
        name = "trees"

        def draft(self, request, limit):
            right = tokens[request.num_generated]
            return Draft(tokens=((right + 1) % TOY_VOCAB, right), parents=(-1, -1), survival=(0.75, 0.25))

    step = told(run(toy_model, [REQUEST], Trees({})))[1]
    assert (step.path, step.stopped, step.num_tokens) == ((1,), "draft_ended", 2)
    assert (step.draft.parents, step.draft.survival, step.draft.source) == ((-1, -1), (0.75, 0.25), "trees")
