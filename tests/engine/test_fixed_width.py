"""The engine's own planner: a fixed number of draft tokens, and none in large batches."""

from __future__ import annotations

import pytest
from competing_cases import plugin

from specserve.engine.description import describe_planner
from specserve.errors import ConfigError
from specserve.speculation.fixed_width import DRAFT_TOKENS, MAX_DRAFT_BATCH, FixedWidthPlanner
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, plain_run, run_requests
from specserve_workbench.testing.requests import toy_request


def oracle_steps(toy_model, count, **options):
    """Tokens of each request's steps but the first, which the prompt brings, and the last, which its end may cut."""
    requests = [toy_request(str(i), range(1, 9 + i), max_tokens=40, ignore_eos=True) for i in range(count)]
    plain = plain_run(toy_model, requests, max_num_seqs=16)
    extra = {"oracle": plugin(OracleDrafter(plain.tokens(), 32))}
    outcome = run_requests(make_engine(toy_model, extra=extra, max_num_seqs=16, **options).engine, requests)
    assert outcome.decided() == plain.decided()
    return [len(step.tokens) for output in outcome.outputs.values() for step in output.steps[1:-1]]


@pytest.mark.parametrize(
    ("options", "width"),
    [({}, DRAFT_TOKENS), ({"draft_tokens": 7}, 7), ({"draft_tokens": 7, "max_draft_tokens": 3}, 3)],
    ids=str,
)
def test_each_request_has_so_many_draft_tokens(toy_model, options, width):
    assert set(oracle_steps(toy_model, 2, **options)) == {width + 1}


@pytest.mark.parametrize(("count", "options"), [(MAX_DRAFT_BATCH + 1, {}), (3, {"max_draft_batch": 2})], ids=str)
def test_larger_batches_have_none(toy_model, count, options):
    assert set(oracle_steps(toy_model, count, **options)) == {1}


def test_a_batch_that_becomes_small_enough_is_drafted_for(toy_model):
    requests = [toy_request(str(i), range(1, 9), max_tokens=n, ignore_eos=True) for i, n in enumerate((10, 40))]
    plain = plain_run(toy_model, requests)
    extra = {"oracle": plugin(OracleDrafter(plain.tokens(), 4))}
    outcome = run_requests(make_engine(toy_model, extra=extra, max_draft_batch=1).engine, requests)
    assert outcome.decided() == plain.decided()
    widths = [len(step.tokens) for step in outcome.outputs["1"].steps]
    assert widths[:9] == [1] * 9
    assert set(widths[11:-1]) == {5}


@pytest.mark.parametrize("fixed", [{"draft_tokens": 3}, {"max_draft_batch": 8}], ids=str)
def test_a_fixed_number_and_a_plugin_that_decides_it_contradict_each_other(toy_model, fixed):
    extra = {"oracle": plugin(OracleDrafter({}, 4), FixedWidthPlanner(8))}
    with pytest.raises(ConfigError, match=r"fix what plugin oracle decides in every step\. Leave them out, or remove"):
        make_engine(toy_model, extra=extra, **fixed)


def test_the_engine_describes_it_where_there_is_a_drafter(toy_model):
    extra = {"oracle": plugin(OracleDrafter({}, 4))}
    described = describe_planner(make_engine(toy_model, extra=extra, draft_tokens=3).engine)
    assert described == {"planner": {"mode": "fixed", "draft_tokens": 3, "max_draft_batch": MAX_DRAFT_BATCH}}
    assert describe_planner(make_engine(toy_model).engine) == {}
