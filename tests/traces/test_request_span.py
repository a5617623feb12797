"""The span of an HTTP request whose engine fails, is slow or is not there; and what is asked of it beside."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from fake_engine import FakeEngine
from in_memory import PARENT_SPAN, PARENT_TRACE, TRACEPARENT, KeptTraces
from multidict import CIMultiDict, CIMultiDictProxy
from opentelemetry.trace import StatusCode, get_current_span

from both_forms import FORMS, in_form
from specserve_server.app.application import make_app
from specserve_server.config import ServerConfig
from specserve_server.traces.request_span import context_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from opentelemetry.sdk.trace import ReadableSpan

    from specserve.text.tokenizer import HfTokenizer

BODY = {"prompt": "hello", "max_tokens": 4}
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@asynccontextmanager
async def served(form: str, engine: FakeEngine, traces: KeptTraces, **options: Any) -> AsyncIterator[Any]:
    config = ServerConfig(**options)
    async with (
        in_form(form, engine, config) as attached,
        TestClient(TestServer(make_app(attached, config, traces=traces))) as client,
    ):
        yield client


async def span_of(
    client: Any, traces: KeptTraces, path: str = "/v1/completions", body: Any = BODY, headers: Any = None
) -> ReadableSpan:
    """The one of a request that is sent now; it has the status that the client got."""
    before = len(traces.spans)
    async with client.post(path, json=body, headers=headers) as response:
        await response.read()
    (span,) = traces.spans[before:]
    assert span.attributes["http.response.status_code"] == response.status
    return span


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/messages"])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_fails_is_an_error_also_of_a_stream_that_has_begun(
    tokenizer: HfTokenizer, form: str, path: str, stream: bool
) -> None:
    traces, body = KeptTraces(), {**(BODY if path == "/v1/completions" else CHAT), "stream": stream}
    async with served(form, FakeEngine(tokenizer, error_after=1), traces) as client:
        span = await span_of(client, traces, path, body)
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description is None
    if form == "direct":  # over a socket the first output may be merged with the error
        assert span.attributes["http.response.status_code"] == (200 if stream else 500)
    assert span.attributes["error.type"] == "generation_failed"
    assert [(event.name, dict(event.attributes)) for event in span.events] == [
        ("exception", {"exception.type": "GenerationError"})
    ]
    assert "specserve.client_disconnected" not in span.attributes


@pytest.mark.parametrize("form", FORMS)
async def test_a_request_that_runs_too_long_is_an_error(tokenizer: HfTokenizer, form: str) -> None:
    traces = KeptTraces()
    async with served(form, FakeEngine(tokenizer, endless=True), traces, request_timeout=0.05) as client:
        span = await span_of(client, traces)
    assert (span.status.status_code, span.attributes["error.type"]) == (StatusCode.ERROR, "request_timeout")
    assert span.attributes["http.response.status_code"] == 504
    assert span.attributes["gen_ai.response.finish_reasons"] == ("error",)


async def test_a_key_that_is_wrong_has_a_span_without_a_model(tokenizer: HfTokenizer) -> None:
    traces = KeptTraces()
    async with served("direct", FakeEngine(tokenizer), traces, api_key="secret") as client:
        span = await span_of(client, traces)
    assert (span.name, span.attributes["error.type"]) == ("text_completion", "invalid_api_key")
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("form", FORMS)
async def test_the_engine_gets_the_context_of_the_span(tokenizer: HfTokenizer, form: str) -> None:
    traces, engine = KeptTraces(), FakeEngine(tokenizer)
    async with served(form, engine, traces) as client:
        headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=value"}
        span = await span_of(client, traces, "/v1/chat/completions", {**CHAT, "n": 2}, headers)
    ids = f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"
    assert (ids[0], span.parent.span_id) == (PARENT_TRACE, int(PARENT_SPAN, 16))
    expected = {"traceparent": f"00-{'-'.join(ids)}-01", "tracestate": "vendor=value"}
    assert [request.trace_headers for request in engine.submitted] == [expected] * 2


async def test_two_parents_are_none(tokenizer: HfTokenizer) -> None:
    traces = KeptTraces()
    async with served("direct", FakeEngine(tokenizer), traces) as client:
        span = await span_of(client, traces, headers=[("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)])
    assert span.parent is None


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": TRACEPARENT + "x" * 5000},
        {"traceparent": "\udc80" * 55},
        {"baggage": "key=\udc80"},
        {"baggage": "=,;wrong," + "x" * 9000},
    ],
)
def test_a_header_that_opentelemetry_cannot_read_has_no_span_above_and_no_line_in_the_log(
    headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    KeptTraces()
    context = context_of(CIMultiDictProxy(CIMultiDict(headers)))
    assert not get_current_span(context).get_span_context().is_valid
    assert not caplog.records


@pytest.mark.parametrize(("name", "value"), [("tracestate", "=,;wrong,a=\udc80"), ("baggage", "key=\udc80")])
def test_what_is_malformed_beside_it_leaves_the_span_above(
    name: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    KeptTraces()
    headers = CIMultiDictProxy(CIMultiDict({"traceparent": TRACEPARENT, name: value}))
    found = get_current_span(context_of(headers)).get_span_context()
    assert f"{found.trace_id:032x}" == PARENT_TRACE
    assert not caplog.records


async def test_states_of_several_headers_are_one(tokenizer: HfTokenizer) -> None:
    traces = KeptTraces()
    async with served("direct", FakeEngine(tokenizer), traces) as client:
        headers = [("traceparent", TRACEPARENT), ("tracestate", "a=1"), ("tracestate", "b=2")]
        span = await span_of(client, traces, headers=headers)
    assert span.context.trace_state.to_header() == "a=1,b=2"


async def test_what_is_not_sampled_reaches_the_engine_without_a_context(
    tokenizer: HfTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    traces, engine = KeptTraces(), FakeEngine(tokenizer)
    async with served("direct", engine, traces) as client:
        assert (await client.post("/v1/completions", json=BODY, headers={"traceparent": TRACEPARENT})).status == 200
    assert [request.trace_headers for request in engine.submitted] == [{}]
    assert not traces.spans


async def test_an_sdk_that_is_disabled_sends_nothing(tokenizer: HfTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    traces, engine = KeptTraces(), FakeEngine(tokenizer)
    async with served("direct", engine, traces) as client:
        assert (await client.post("/v1/completions", json=BODY, headers={"traceparent": TRACEPARENT})).status == 200
    assert [request.trace_headers for request in engine.submitted] == [{}]
    assert not traces.spans


async def test_settings_of_a_request_are_attributes_where_they_are_given(tokenizer: HfTokenizer) -> None:
    traces = KeptTraces()
    async with served("direct", FakeEngine(tokenizer), traces, root_path="/llm") as client:
        given = {"top_k": 5, "top_p": 0.5, "seed": 3, "frequency_penalty": 0.25, "presence_penalty": 0.75}
        span = await span_of(client, traces, "/llm/v1/completions", {**BODY, **given})
        plain = await span_of(client, traces)
    found = {name.removeprefix("gen_ai.request."): value for name, value in span.attributes.items()}
    assert {name: found[name] for name in given} == given
    assert span.attributes["http.route"] == "/v1/completions"
    assert span.attributes["url.path"] == "/llm/v1/completions"
    assert not {"gen_ai.request.top_k", "gen_ai.request.seed", "gen_ai.request.choice.count"} & set(plain.attributes)


@pytest.mark.parametrize("name", ["seed", "top_k", "max_tokens"])
async def test_a_number_that_otlp_has_not_is_refused(tokenizer: HfTokenizer, name: str) -> None:
    """It would cost all spans that are sent with it."""
    traces = KeptTraces()
    async with served("direct", FakeEngine(tokenizer), traces) as client:
        span = await span_of(client, traces, body={**BODY, name: 2**63})
    assert span.attributes["http.response.status_code"] == 400
    assert not [value for value in span.attributes.values() if isinstance(value, int) and value >= 2**63]


async def test_without_traces_no_request_meets_any(tokenizer: HfTokenizer) -> None:
    app = make_app(FakeEngine(tokenizer), ServerConfig())
    assert "traces_middleware" not in [middleware.__name__ for middleware in app.middlewares]
