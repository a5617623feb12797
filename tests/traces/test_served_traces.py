"""Traces of a server in each of its forms, as a collector gets them."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import secrets
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from collector import ERROR, INTERNAL, SERVER, UNSET

if TYPE_CHECKING:
    from collector import Collector, Span

    from server_process import ServerProcess

PHASES = ["queue", "prefill", "decode"]
PROMPT = "secretword one two one two one two"
LENGTH = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}
MESSAGES = [{"role": "user", "content": PROMPT}]
OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "/v1/completions": ("text_completion", {"prompt": PROMPT, **LENGTH}),
    "/v1/chat/completions": ("chat", {"messages": MESSAGES, **LENGTH}),
    "/v1/messages": ("chat", {"messages": MESSAGES, "max_tokens": 12, "temperature": 0}),
    "/v1/responses": ("chat", {"input": PROMPT, "max_output_tokens": 12, "temperature": 0}),
}


class Client:
    """Asks under a new trace each time, unless `headers` say another."""

    def __init__(self, server: ServerProcess) -> None:
        self.url, self.trace, self.parent = server.url, "", ""

    def headers(self, flags: str = "01") -> dict[str, str]:
        self.trace, self.parent = secrets.token_hex(16), secrets.token_hex(8)
        return {"traceparent": f"00-{self.trace}-{self.parent}-{flags}", "tracestate": "vendor=value"}

    async def post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> tuple[int, str]:
        sent = self.headers() if headers is None else headers
        async with (
            aiohttp.ClientSession(self.url) as session,
            session.post(path, json=body, headers=sent) as response,
        ):
            return response.status, await response.text()

    async def is_served(self) -> bool:
        """Whether a request runs."""
        async with aiohttp.ClientSession(self.url) as session, session.get("/metrics") as response:
            return re.search(r"(?m)^vllm:num_requests_running\{.*\} [1-9]", await response.text()) is not None


@pytest.fixture
def client(server: ServerProcess) -> Client:
    return Client(server)


def check_order(root: Span, *phases: Span) -> None:
    times = [root.begin, *(time for phase in phases for time in (phase.begin, phase.end)), root.end]
    assert times == sorted(times)
    assert all(phase.parent == root.id and phase.kind == INTERNAL for phase in phases)
    assert all(one.end == next.begin for one, next in itertools.pairwise(phases))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", OPERATIONS)
async def test_a_request_is_a_span_of_its_clients_with_what_the_engine_did_below(
    client: Client, collector: Collector, path: str, stream: bool
) -> None:
    operation, body = OPERATIONS[path]
    status, answer = await client.post(path, {**body, "stream": stream})
    assert status == 200, answer
    root, *phases = collector.of_trace(client.trace, 4)
    assert [phase.name for phase in phases] == PHASES
    check_order(root, *phases)
    assert (root.parent, root.state, root.kind, root.status) == (client.parent, "vendor=value", SERVER, UNSET)
    model = root.attributes["gen_ai.request.model"]
    assert root.name == f"{operation} {model}"
    found = root.attributes
    assert found["gen_ai.operation.name"] == operation
    assert (found["http.route"], found["http.response.status_code"]) == (path, 200)
    assert (found["gen_ai.request.max_tokens"], found["gen_ai.request.temperature"]) == (12, 0.0)
    assert found["gen_ai.request.stream"] is stream
    assert found["gen_ai.response.id"] in answer
    assert found["gen_ai.response.model"] == model
    assert found["gen_ai.response.finish_reasons"] in (["length"], ["stop"])
    assert found["gen_ai.usage.output_tokens"] == phases[-1].attributes["specserve.decode.tokens"] > 0
    assert found["gen_ai.usage.input_tokens"] == phases[1].attributes["specserve.prefill.tokens"] > 0
    assert {span.resource["service.name"] for span in (root, *phases)} == {"specserve"}


async def test_nothing_that_is_sent_has_text_of_the_client_or_the_model(client: Client, collector: Collector) -> None:
    _, answer = await client.post("/v1/completions", {"prompt": PROMPT, "stop": ["stopword"], **LENGTH})
    collector.of_trace(client.trace, 4)
    text = json.loads(answer)["choices"][0]["text"]
    assert len(text) > 4
    wrong = {"prompt": PROMPT, "guided_regex": "secretword", "stop": [7], "max_tokens": "secretword"}
    assert (await client.post("/v1/completions", wrong))[0] == 400
    collector.of_trace(client.trace, 1)
    for body in collector.bodies:
        assert not [word for word in ("secretword", "stopword", text) if word.encode() in body]


async def test_every_choice_of_every_prompt_has_its_own_spans(client: Client, collector: Collector) -> None:
    body = {"prompt": [PROMPT, "another"], "n": 2, "max_tokens": 3, "ignore_eos": True, "seed": 7}
    _, answer = await client.post("/v1/completions", body)
    root, *phases = collector.of_trace(client.trace, 1 + 4 * len(PHASES))
    by_request: dict[object, list[Span]] = {}
    for phase in phases:
        by_request.setdefault(phase.attributes["specserve.request.id"], []).append(phase)
    id = root.attributes["gen_ai.response.id"]
    assert sorted(map(str, by_request)) == [f"{id}-{index}" for index in range(4)]
    for one in by_request.values():
        assert [phase.name for phase in one] == PHASES
        check_order(root, *one)
    assert root.attributes["gen_ai.request.choice.count"] == 2
    assert root.attributes["gen_ai.request.seed"] == 7
    assert root.attributes["gen_ai.response.finish_reasons"] == ["length"] * 4
    assert root.attributes["gen_ai.usage.input_tokens"] == json.loads(answer)["usage"]["prompt_tokens"]
    assert root.attributes["gen_ai.usage.output_tokens"] == 12


async def test_cached_tokens_chunks_and_drafts_are_told(client: Client, collector: Collector) -> None:
    body = {"prompt": list(range(1, 151)), **LENGTH, "max_tokens": 60}
    prefills, roots = [], []
    for _ in range(2):
        await client.post("/v1/completions", body)
        root, _, prefill, decode = collector.of_trace(client.trace, 4)
        prefills.append([prefill.attributes[f"specserve.prefill.{name}"] for name in ("cached_tokens", "chunks")])
        roots.append(root.attributes["gen_ai.usage.cache_read.input_tokens"])
    assert (prefills[0], roots[0]) == ([0, 3], 0)
    assert (prefills[1], roots[1]) == ([144, 1], 144)
    found = {name.removeprefix("specserve.speculation."): value for name, value in decode.attributes.items()}
    assert found["steps"] > 0
    assert found["drafted_tokens"] == found["drafters.ngram.drafted_tokens"] >= found["accepted_tokens"]
    assert found["mean_acceptance_length"] == 1 + found["accepted_tokens"] / found["steps"]


@pytest.mark.parametrize(
    "wrong", ["", "hello", "00-00000000000000000000000000000000-0000000000000000-01", "ff-{trace}-{parent}-01"]
)
async def test_a_malformed_header_is_ignored(client: Client, collector: Collector, wrong: str) -> None:
    client.headers()
    header = wrong.format(trace=client.trace, parent=client.parent)
    status, answer = await client.post("/v1/completions", {"prompt": PROMPT, **LENGTH}, {"traceparent": header})
    assert status == 200
    (root,) = await spans_of_answer(collector, json.loads(answer)["id"])
    assert root.parent == ""
    assert root.trace != client.trace
    assert [span.name for span in collector.of_trace(root.trace, 4)][1:] == PHASES


async def spans_of_answer(collector: Collector, id: str) -> list[Span]:
    async with asyncio.timeout(60):
        while not (found := [span for span in collector.spans if span.attributes.get("gen_ai.response.id") == id]):
            await asyncio.sleep(0.02)
    return found


async def test_what_the_client_does_not_sample_is_not_sent(client: Client, collector: Collector) -> None:
    await client.post("/v1/completions", {"prompt": PROMPT, **LENGTH}, client.headers(flags="00"))
    left_out = client.trace
    await client.post("/v1/completions", {"prompt": PROMPT, **LENGTH})
    collector.of_trace(client.trace, 4)
    await asyncio.sleep(0.2)
    assert not [span for span in collector.spans if span.trace == left_out]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_is_no_error(client: Client, collector: Collector, stream: bool) -> None:
    body = {"prompt": PROMPT, "max_tokens": 1900, "ignore_eos": True, "temperature": 1, "stream": stream}
    asking = asyncio.ensure_future(client.post("/v1/completions", body))
    while not await client.is_served() and not asking.done():
        await asyncio.sleep(0.005)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    root, *phases = collector.of_trace(client.trace, 4)
    assert root.attributes["specserve.client_disconnected"] is True
    assert root.attributes["gen_ai.response.finish_reasons"] == ["abort"]
    assert "error.type" not in root.attributes
    assert phases[-1].attributes["specserve.finish_reason"] == "abort"
    assert {span.status for span in (root, *phases)} == {UNSET}
    assert phases[-1].begin < root.end


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"prompt": PROMPT, "temperature": -1}, 400, "invalid_request_error"),
        ({"prompt": PROMPT, "model": "secretword"}, 404, "model_not_found"),
        ({"prompt": [1] * 5000}, 400, "context_length_exceeded"),
    ],
)
async def test_a_refused_request_says_why_and_is_no_error_of_the_server(
    client: Client, collector: Collector, body: dict[str, Any], status: int, code: str
) -> None:
    assert (await client.post("/v1/completions", body))[0] == status
    (root,) = collector.of_trace(client.trace, 1)
    assert root.name == "text_completion"
    assert (root.attributes["http.response.status_code"], root.attributes["error.type"]) == (status, code)
    assert (root.status, root.message, root.events) == (UNSET, "", [])


async def test_other_routes_are_not_traced(client: Client, collector: Collector) -> None:
    untraced = []
    async with aiohttp.ClientSession(client.url) as session:
        for path in ("/health", "/v1/models", "/v1/nothing", "/v1/completions"):
            async with session.get(path, headers=client.headers()) as response:
                await response.read()
            untraced.append(client.trace)
    await client.post("/tokenize", {"prompt": PROMPT})
    untraced.append(client.trace)
    await client.post("/v1/completions", {"prompt": PROMPT, **LENGTH})
    collector.of_trace(client.trace, 4)
    assert not [span for span in collector.spans if span.trace in untraced]


async def test_spans_go_to_the_path_that_otlp_has_for_them(client: Client, collector: Collector) -> None:
    await client.post("/v1/completions", {"prompt": PROMPT, **LENGTH})
    collector.of_trace(client.trace, 4)
    assert collector.paths == {"/v1/traces"}
    assert not [span for span in collector.spans if span.status == ERROR]
