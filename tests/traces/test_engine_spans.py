"""What the engine did for a request, as spans: by the engine's times, whatever the end."""

from __future__ import annotations

import pytest
from exploding import MARKER, ExplodingKernels, marked_model
from faulty import in_process
from in_memory import PARENT_SPAN, PARENT_TRACE, TRACEPARENT, KeptTraces
from msgspec.structs import replace
from opentelemetry.trace import StatusCode
from scheduling_cases import BLOCK, expected_tokens, long_request

from specserve.errors import RequestError
from specserve_server.traces.engine_spans import EngineSpans
from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests

TWO_LONG_PROMPTS = {"a": range(1, 21), "b": range(40, 60)}


@pytest.fixture
def traces() -> KeptTraces:
    return KeptTraces()


def traced(request, **headers):
    return replace(request, trace_headers={"traceparent": TRACEPARENT, **headers})


def engine_with(traces, model, *plugins, **options):
    engine = make_engine(model, *plugins, **options).engine
    engine.listeners.append(EngineSpans(traces.provider.tracer, traces.clock).ended)
    return engine


def test_a_request_has_three_spans_that_follow_each_other_below_its_own(toy_model, traces):
    engine = engine_with(traces, toy_model)
    live = engine.add(traced(long_request("a", max_tokens=7), tracestate="vendor=1"))
    run_requests(engine, [])
    queue, prefill, decode = traces.spans
    assert [span.name for span in traces.spans] == ["queue", "prefill", "decode"]
    for span in traces.spans:
        assert (span.context.trace_id, span.parent.span_id) == (int(PARENT_TRACE, 16), int(PARENT_SPAN, 16))
        assert span.context.trace_state.to_header() == "vendor=1"
        assert span.attributes["specserve.request.id"] == "a"
    assert queue.start_time < queue.end_time == prefill.start_time < prefill.end_time == decode.start_time
    assert decode.end_time - queue.start_time == pytest.approx((live.last_token - live.arrival) * 1e9, abs=2)
    assert decode.attributes["specserve.decode.tokens"] == 7
    assert decode.attributes["specserve.finish_reason"] == "length"
    assert "specserve.finish_reason" not in prefill.attributes


def test_prefill_says_how_much_was_cached_and_in_how_many_chunks_the_rest_came(toy_model, traces):
    engine = engine_with(traces, toy_model, max_num_batched_tokens=16)
    run_requests(engine, [traced(long_request("first", range(1, 71)))])
    run_requests(engine, [traced(long_request("again", range(1, 71)))])
    first, again = (span.attributes for span in traces.spans if span.name == "prefill")
    names = ("tokens", "cached_tokens", "chunks")
    assert [first[f"specserve.prefill.{name}"] for name in names] == [70, 0, 5]
    assert [again[f"specserve.prefill.{name}"] for name in names] == [70, 64, 1]


def test_decode_says_what_each_drafter_gave(toy_model, traces):
    request = long_request("a")
    engine = engine_with(traces, toy_model, OracleDrafter(expected_tokens(toy_model, request), 4))
    live = engine.add(traced(request))
    run_requests(engine, [])
    found = traces.by_name()["decode"].attributes
    (name,) = live.by_drafter
    assert found["specserve.speculation.steps"] == live.num_spec_steps > 0
    assert found["specserve.speculation.drafted_tokens"] == live.num_draft_tokens
    assert found["specserve.speculation.accepted_tokens"] == live.num_accepted_draft_tokens > 0
    mean = 1 + live.num_accepted_draft_tokens / live.num_spec_steps
    assert found["specserve.speculation.mean_acceptance_length"] == mean > 2
    assert found[f"specserve.speculation.drafters.{name}.drafted_tokens"] == live.num_draft_tokens
    assert found[f"specserve.speculation.drafters.{name}.accepted_tokens"] == live.num_accepted_draft_tokens


def test_a_request_without_drafts_says_nothing_of_speculation(toy_model, traces):
    run_requests(engine_with(traces, toy_model), [traced(long_request("a"))])
    assert not [name for name in traces.by_name()["decode"].attributes if "speculation" in name]


def test_a_preemption_is_an_event_of_the_span_that_it_interrupts(toy_model, traces):
    engine = engine_with(traces, toy_model, kv_memory=str(5 * BLOCK))
    requests = [traced(long_request(name, prompt, max_tokens=55)) for name, prompt in TWO_LONG_PROMPTS.items()]
    live = [engine.add(request) for request in requests]
    run_requests(engine, [])
    (preempted,) = [request for request in live if request.num_preemptions]
    events = [(span, event) for span in traces.spans for event in span.events]
    assert len(events) == preempted.num_preemptions > 0
    for (span, event), at in zip(events, preempted.preempted_at, strict=True):
        assert (span.name, span.attributes["specserve.request.id"]) == ("decode", preempted.id)
        assert event.name == "preempted"
        assert span.start_time < event.timestamp == traces.clock.at(at) < span.end_time


def test_what_is_aborted_in_the_queue_has_a_queue_alone(toy_model, traces):
    engine = engine_with(traces, toy_model)
    engine.add(traced(long_request("a")))
    engine.abort("a")
    (queue,) = traces.spans
    assert (queue.name, queue.attributes["specserve.finish_reason"]) == ("queue", "abort")
    assert queue.status.status_code is StatusCode.UNSET


def test_what_is_aborted_between_chunks_has_no_decode(toy_model, traces):
    engine = engine_with(traces, toy_model, max_num_batched_tokens=8)
    engine.add(traced(long_request("a", range(1, 41))))
    engine.step()
    engine.step()
    engine.abort("a")
    queue, prefill = traces.spans
    assert prefill.name == "prefill"
    assert prefill.start_time == queue.end_time < prefill.end_time
    assert prefill.attributes["specserve.prefill.chunks"] == 2
    assert prefill.attributes["specserve.finish_reason"] == "abort"


def test_what_is_aborted_while_it_decodes_ends_with_the_abort(toy_model, traces):
    engine = engine_with(traces, toy_model)
    live = engine.add(traced(long_request("a")))
    engine.step()
    engine.step()
    engine.abort("a")
    decode = traces.by_name()["decode"]
    assert decode.attributes["specserve.finish_reason"] == "abort"
    assert decode.attributes["specserve.decode.tokens"] == live.num_generated == 2
    assert decode.end_time > traces.clock.at(live.last_token)


def test_a_request_that_nobody_traces_has_no_span(toy_model, traces):
    engine = engine_with(traces, toy_model)
    run_requests(engine, [long_request("a"), traced(long_request("b"))])
    assert {span.attributes["specserve.request.id"] for span in traces.spans} == {"b"}


def test_a_request_that_is_refused_has_no_span(toy_model, traces):
    engine = engine_with(traces, toy_model)
    with pytest.raises(RequestError):
        engine.check(traced(long_request("a", max_tokens=0)))
    assert not traces.spans


def test_a_request_that_fails_says_what_was_raised_and_no_text_of_it(tmp_path, traces):
    model = marked_model(tmp_path / "model")
    engine = engine_with(traces, model, extra=in_process("boom", make_kernels=lambda: ExplodingKernels(3)))
    run_requests(engine, [traced(long_request("a", [5, 6, MARKER])), traced(long_request("b", max_tokens=2))])
    failed, well = ([s for s in traces.spans if s.attributes["specserve.request.id"] == name] for name in "ab")
    assert [span.name for span in failed] == ["queue", "prefill"]
    assert failed[-1].attributes["error.type"] == "Boom"
    assert failed[-1].attributes["specserve.finish_reason"] == "error"
    assert (failed[-1].status.status_code, failed[-1].status.description) == (StatusCode.ERROR, None)
    assert [span.status.status_code for span in (failed[0], *well)] == [StatusCode.UNSET] * 4
