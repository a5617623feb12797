"""What is told of the drafts of every step adds up, and telling changes nothing."""

from __future__ import annotations

import json
import logging

import pytest

from specserve import tracing
from specserve.errors import ConfigError
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_server.cli import main
from specserve_server.cli.draft_trace import DraftStep, trace_drafts, trace_if_asked
from specserve_server.cli.drafts_table import MOST, drafts_table
from specserve_workbench.testing.drafters import NoisyDrafter, OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests


@pytest.fixture
def traces(capsys):
    """The lines printed since the last call; nobody listens afterwards."""
    yield lambda: capsys.readouterr().err.splitlines()
    for trace in (tracing.HOOKS, tracing.DRAFTS):
        trace.logger.handlers.clear()
        trace.logger.setLevel(logging.NOTSET)
        trace.logger.propagate, trace.form = True, "text"


def traced(model, requests, drafter=None, **options):
    engine, steps = make_engine(model, drafter, **options).engine, []
    trace_drafts(engine, steps.append)
    return run_requests(engine, requests), steps


def run_as_asked(model, requests):
    """With the trace of `--trace drafts`, where it is on."""
    engine = make_engine(model).engine
    trace_if_asked(engine)
    run_requests(engine, requests)


def test_it_adds_up_and_changes_nothing(toy_model):
    requests = varied_requests(12)
    plain = plain_run(toy_model, requests)
    drafter = NoisyDrafter(plain.tokens(), p=0.7, max_width=6, vocab_size=TOY_VOCAB)
    served, steps = traced(toy_model, requests, drafter)
    assert served.decided() == plain.decided()
    assert sum(step.verified for step in steps) == served.metrics.num_draft_tokens > 0
    assert sum(step.accepted for step in steps) == served.metrics.num_accepted_tokens > 0
    for request in requests:
        own = [step for step in steps if step.request == request.request_id]
        assert sum(step.tokens for step in own) == len(served.tokens()[request.request_id])
        assert [step.step for step in own] == sorted(step.step for step in own)
    assert {step.drafters for step in steps} == {"", "noisy"}


class OnlyTwo(FixedWidthPlanner):
    """Wants drafts of eight tokens and keeps two of each; none behind ten tokens."""

    def limits(self, requests):
        return [8 if len(request.tokens) < 10 else 0 for request in requests]

    def choose(self, requests, budget, base_rows):
        return [None if request.draft is None else min(2, budget) for request in requests]


def test_it_says_why_fewer_were_verified(toy_model):
    request = toy_request("a", (1, 2, 3), max_tokens=12, ignore_eos=True)
    outputs = run(toy_model, [request]).tokens()
    _, plain = traced(toy_model, [request])
    assert [step.why for step in plain] == ["the step computed the prompt", *["no drafter is enabled"] * 11]
    _, kept = traced(toy_model, [request], OracleDrafter(outputs, 4), planner=OnlyTwo(8))
    assert [(step.context, step.proposed, step.verified, step.tokens, step.why) for step in kept] == [
        (0, 0, 0, 1, "the step computed the prompt"),
        (3, 4, 2, 3, "2 of 4 proposed draft tokens were verified"),
        (6, 4, 2, 3, "2 of 4 proposed draft tokens were verified"),
        *[(context, 0, 0, 1, "the planner wanted no draft") for context in range(9, 13)],
        (13, 0, 0, 1, "the request needs one token more at most"),
    ]
    _, silent = traced(toy_model, [request], OracleDrafter({"a": ()}, 4))
    assert [step.why for step in silent][1:-1] == ["no draft came from oracle"] * 10


def test_events_are_lines_of_text_or_json(toy_model, traces):
    request = toy_request("a b", (1, 2, 3), max_tokens=2)
    tracing.start_tracing(["drafts", "hooks"])
    run_as_asked(toy_model, [request])
    lines = traces()
    assert any(
        line.startswith("hooks: plugin=builtin hook=make_kernels gave=TorchKernels seconds=0.") for line in lines
    )
    assert lines[-2].startswith('drafts: step=0 request="a b" context=0 rows=3 proposed=0 drafters="" verified=0')
    tracing.DRAFTS.form = "json"
    run_as_asked(toy_model, [request])
    last = json.loads(traces()[-1])
    assert (last["trace"], last["request"], last["step"], last["why"]) == (
        *("drafts", "a b", 1, "no drafter is enabled"),
    )


def test_nobody_listens_unless_asked(toy_model, traces):
    assert not tracing.HOOKS.is_on
    assert not tracing.DRAFTS.is_on
    run_as_asked(toy_model, [toy_request("a", (1, 2, 3), max_tokens=2)])
    assert traces() == []


def test_an_unknown_topic_is_refused():
    with pytest.raises(
        ConfigError,
        match="--trace, or SPECSERVE_TRACE, must be some of hooks, drafts, separated by commas; got 'draft'",
    ):
        tracing.start_tracing(["draft"])


def test_generate_explains_its_steps(toy_model, monkeypatch, traces):
    monkeypatch.setenv("SPECSERVE_TRACE", "drafts")
    flags = ("--max-tokens", "5", "--temperature", "0", "--explain")
    assert main(["generate", str(toy_model), "one two one two", *flags]) == 0
    said = traces()
    assert sum(line.startswith("drafts: step=") for line in said) == 5
    table = said[next(i for i, line in enumerate(said) if line.startswith("step  context")) :]
    assert table[1].split() == ["0", "0", "13", "0", "0", "0", "1", "the", "step", "computed", "the", "prompt"]
    assert table[6] == "5 steps; 0 draft tokens verified, 0 accepted."


def test_a_long_table_shows_its_ends():
    steps = [DraftStep(i, "a", i, 1, 0, "", 0, 0, 1, "no draft came from ngram") for i in range(MOST + 50)]
    lines = drafts_table(steps).splitlines()
    assert len(lines) == 1 + MOST + 1 + 1
    assert "50 steps left out" in lines[1 + MOST // 2]
