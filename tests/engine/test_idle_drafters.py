"""Drafters that may be told of idle steps afterwards learn of every step once and in order, as if told at once."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from covering import covering
from specserve.batch import hidden_states
from specserve.engine.idle_steps import IdleSteps
from specserve.metrics import EngineMetrics
from specserve.protocols import Drafter, DrafterNeeds
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

LAYERS = (0, 2)


class Idle(FixedWidthPlanner):
    """Wants no drafts, and need not be called for `pause` steps."""

    def __init__(self, pause):
        super().__init__(4)
        self.pause = pause

    def limits(self, requests):
        return [0] * len(requests)

    def idle_steps(self):
        return self.pause


class Listener(Drafter):
    """Writes down what it hears: requests that begin and end, and of each step the requests and their hidden states."""

    name, needs = "listener", DrafterNeeds(hidden_layers=LAYERS)

    def __init__(self, patience, failing=()):
        self.patience, self.failing = patience, failing
        self.heard, self.num_calls, self.num_steps, self.most = [], 0, 0, 0

    def start(self, request):
        self.heard.append(f"{request.id} begins")

    def stop(self, request):
        self.heard.append(f"{request.id} ends")

    def propose(self, batch, output, verdict, limits):
        self.hear(batch, 1, [output.hidden])
        return [None] * len(limits)

    def idle_steps(self):
        return self.patience

    def observe_idle(self, batch, count, hidden):
        self.most = max(self.most, count)
        assert 0 < count <= self.patience
        assert batch.num_rows == len(batch.spans)
        self.hear(batch, count, hidden)

    def hear(self, batch, count, hidden):
        self.num_calls += 1
        self.num_steps += count
        if self.num_calls in self.failing:
            raise RuntimeError("what these steps left is lost")
        ids = tuple(span.request.id for span in batch.spans)
        rows = torch.cat([torch.cat([step[layer] for layer in LAYERS], -1) for step in hidden])
        self.heard += [(ids, states.numpy().tobytes()) for states in rows.chunk(count)]


def heard_in(toy_model, requests, listener, pause=1000, **options):
    engine = make_engine(toy_model, listener, planner=Idle(pause), **options).engine
    outcome = run_requests(engine, requests)
    assert not outcome.metrics.drafter_faults
    assert outcome.decided() == plain_run(toy_model, requests, **options).decided()
    assert listener.num_steps == outcome.metrics.num_steps
    return engine.metrics


@covering(("patience", "options"), patience=[1, 7, 1000], pause=[1, 1000], options=[
    {}, {"max_num_seqs": 1, "block_size": 16}, {"max_num_seqs": 3}, {"max_num_batched_tokens": 24},
])  # fmt: skip
def test_what_is_told_afterwards_is_what_every_step_would_have_told(toy_model, patience, pause, options):
    requests = varied_requests(10)
    each, afterwards = Listener(0), Listener(patience)
    heard_in(toy_model, requests, each, **options)
    heard_in(toy_model, requests, afterwards, pause, **options)
    assert afterwards.heard == each.heard
    assert each.most == 0
    assert 0 < afterwards.most <= patience


def test_many_steps_are_told_at_once(toy_model):
    listener = Listener(1000)
    heard_in(toy_model, [toy_request("a", range(1, 9), max_tokens=60, ignore_eos=True)], listener)
    assert listener.most > 50
    assert listener.num_calls < 5


def test_preemption_ends_idle_steps(toy_model):
    """A preempted request whose prefix is cached computes one token anew, and so looks as if it went on."""
    requests = [toy_request(f"{i}", range(1, 40 + i), max_tokens=80, ignore_eos=True) for i in range(4)]
    each, afterwards = Listener(0), Listener(1000)
    assert heard_in(toy_model, requests, each, kv_memory="160K").num_preemptions > 0
    heard_in(toy_model, requests, afterwards, kv_memory="160K")
    assert afterwards.heard == each.heard


def test_no_step_is_idle_after_a_preemption():
    """Whatever the next batch looks like: a preempted request whose prefix is cached may compute one token anew."""
    metrics = EngineMetrics()
    idle, batch = IdleSteps([], metrics), SimpleNamespace(num_rows=1, spans=[None])
    idle.begin(1, Idle(9))
    assert idle.go_on(batch)
    metrics.num_preemptions += 1
    assert not idle.go_on(batch)
    assert not idle.go_on(batch)


def test_hidden_states_that_lie_in_several_tensors_are_told_in_order(toy_model, monkeypatch):
    monkeypatch.setattr(hidden_states, "SHARED_BYTES", 0)
    requests = [toy_request(name, range(1, 9), max_tokens=200, ignore_eos=True) for name in "ab"]
    each, afterwards = Listener(0), Listener(1000)
    heard_in(toy_model, requests, each)
    heard_in(toy_model, requests, afterwards)
    assert afterwards.heard == each.heard
    assert afterwards.most * len(requests) > 2 * hidden_states.MIN_SHARED_ROWS


def test_an_aborted_request_and_one_that_begins_are_heard_of_in_order(toy_model):
    def heard_by(listener):
        engine = make_engine(toy_model, listener, planner=Idle(1000), max_num_seqs=2).engine
        for name in "abc":
            engine.add(toy_request(name, range(1, 9), max_tokens=60, ignore_eos=True))
        for _ in range(20):
            engine.step()
        engine.add(toy_request("d", range(1, 9), max_tokens=10, ignore_eos=True))
        engine.step()
        engine.abort("a")
        while engine.has_work:
            engine.step()
        return listener.heard

    expected = heard_by(Listener(0))
    assert heard_by(Listener(1000)) == expected
    assert "a ends" in expected


@pytest.mark.parametrize("rubbish", [-1, 2.0, "many", None])
def test_a_patience_that_is_no_number_is_counted_and_the_drafter_is_told_of_every_step(toy_model, rubbish):
    listener = Listener(rubbish)
    engine = make_engine(toy_model, listener, planner=Idle(4)).engine
    outcome = run_requests(engine, varied_requests(4))
    assert outcome.tokens() == plain_run(toy_model, varied_requests(4)).tokens()
    assert set(outcome.metrics.drafter_faults) == {("listener", "idle steps that are no number")}
    assert listener.num_steps == outcome.metrics.num_steps


def test_a_fault_in_what_is_told_afterwards_is_counted_and_harms_no_request(toy_model):
    requests = [toy_request("a", range(1, 9), max_tokens=60, ignore_eos=True)]
    for failing, is_switched_off in (((3,), False), (range(1, 99), True)):
        listener = Listener(5, failing)
        engine = make_engine(toy_model, listener, planner=Idle(20), draft_fault_limit=3).engine
        outcome = run_requests(engine, requests)
        assert outcome.tokens() == plain_run(toy_model, requests).tokens()
        assert outcome.metrics.drafter_faults["listener", "raised RuntimeError"] == (3 if is_switched_off else 1)
        assert (listener.num_steps < outcome.metrics.num_steps) == is_switched_off
