"""What is counted of requests and steps: the phases of a request's time, its tokens, the tokens of each step."""

from __future__ import annotations

import pytest

from specserve.batch.request import Request
from specserve.engine.request_metrics import count_end, count_tokens
from specserve.metrics import STEP_TOKENS, TOKENS, EngineMetrics, Histogram
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests


def a_request(scheduled=12.0):
    wire = toy_request("a", range(1, 8), max_tokens=30)
    request = Request.admit(wire, seed=0, arrival=10.0, order=0, max_len=37)
    request.first_scheduled, request.cached_tokens = scheduled, 3
    return request


def get_tokens(metrics, request, count, now):
    count_tokens(metrics, request, count, now)
    request.tokens += [1] * count


def test_a_requests_time_is_divided_into_phases():
    metrics, request = EngineMetrics(), a_request()
    get_tokens(metrics, request, 1, 15.0)
    get_tokens(metrics, request, 3, 16.0)
    get_tokens(metrics, request, 1, 20.0)
    count_end(metrics, request, "length", 20.0)
    assert (metrics.request_prefill_time.total, metrics.request_decode_time.total) == (3.0, 5.0)
    assert (metrics.request_inference_time.total, metrics.e2e_request_latency.total) == (8.0, 10.0)
    assert metrics.request_time_per_output_token.total == 5.0 / 4
    assert (metrics.request_prompt_tokens.total, metrics.request_generation_tokens.total) == (7, 5)
    assert metrics.request_params_max_tokens.total == 30
    assert (metrics.prompt_tokens, metrics.prompt_tokens_cached) == (7, 3)
    assert metrics.request_success == {"length": 1}


def test_one_token_has_no_time_between_tokens():
    metrics, request = EngineMetrics(), a_request()
    get_tokens(metrics, request, 1, 15.0)
    count_end(metrics, request, "stop", 15.0)
    assert metrics.request_decode_time.total == 0.0
    assert sum(metrics.request_decode_time.counts) == 1
    assert not any(metrics.request_time_per_output_token.counts)


def test_a_request_that_fails_before_its_first_token_has_no_phases():
    metrics, request = EngineMetrics(), a_request(scheduled=None)
    count_end(metrics, request, "error", 15.0)
    assert sum(metrics.request_prompt_tokens.counts) == sum(metrics.e2e_request_latency.counts) == 1
    for phase in (metrics.request_prefill_time, metrics.request_decode_time, metrics.request_inference_time):
        assert not any(phase.counts)


@pytest.mark.parametrize(
    ("value", "bucket"), [(0, 0), (1, 0), (2, 1), (3, 2), (5, 2), (6, 3), (5_000_000, 20), (5_000_001, 21)]
)
def test_a_bound_belongs_to_its_bucket(value, bucket):
    histogram = Histogram(TOKENS)
    histogram.add(value)
    assert [i for i, count in enumerate(histogram.counts) if count] == [bucket]


def test_every_step_counts_the_prompt_tokens_that_it_computed_and_those_that_it_generated(toy_model):
    engine = make_engine(toy_model, max_num_batched_tokens=64).engine
    requests = [toy_request("long", range(1, 161), max_tokens=3, ignore_eos=True)]
    run_requests(engine, requests)
    of_steps = engine.metrics.iteration_tokens
    # 160 prompt tokens in three chunks, the last one with a token; then two steps of a token
    assert of_steps.total == 160 + 3
    counts = {bound: count for bound, count in zip(STEP_TOKENS, of_steps.counts, strict=False) if count}
    assert counts == {64.0: 3, 1.0: 2}


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 48}])
def test_histograms_of_requests_agree_with_the_counters(toy_model, options):
    requests = varied_requests(24)
    outputs = run(toy_model, requests, **options).outputs
    futures = {name: output.tokens for name, output in outputs.items()}
    metrics = run(toy_model, requests, OracleDrafter(futures, 4), **options).metrics
    assert metrics.num_accepted_tokens > 0
    assert metrics.request_generation_tokens.total == metrics.generation_tokens
    assert metrics.request_prompt_tokens.total == metrics.prompt_tokens
    assert metrics.request_params_max_tokens.total == sum(request.params.max_tokens for request in requests)
    assert sum(metrics.iteration_tokens.counts) == metrics.num_steps
    assert metrics.iteration_tokens.total == metrics.prompt_tokens_computed + metrics.generation_tokens
    assert metrics.prompt_tokens_computed == metrics.prompt_tokens - metrics.prompt_tokens_cached
    assert metrics.prompt_tokens_cached == metrics.prefix_cache_hits > 0
    num = len(requests)
    for histogram in (metrics.request_queue_time, metrics.request_prefill_time, metrics.request_inference_time):
        assert sum(histogram.counts) == num


def test_an_abort_counts_as_an_end_only(toy_model):
    engine = make_engine(toy_model).engine
    engine.add(toy_request("a", range(1, 20), max_tokens=50))
    engine.step()
    engine.abort("a")
    assert engine.metrics.request_success == {"abort": 1}
    assert engine.metrics.generation_tokens > 0
    assert not any(engine.metrics.request_generation_tokens.counts)
