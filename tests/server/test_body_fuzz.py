"""Any body, over HTTP to a real engine: no 500, no dead engine, and no concurrent request gets another response."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from body_strategies import CHAT, COMPLETIONS, TOKENIZE, FuzzCase, bodies, cases
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from live_server import ADAPTER, LiveServer, serving
from response_checks import Response, check_response, read_choices, without_speculation

from specserve.errors import RequestError
from specserve_server.bodies.requests import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from specserve_server.chat import serving as serving_chat
from specserve_server.completions import serving as serving_completion
from specserve_server.engines.templated_engine import templated
from specserve_server.operations import tokenization
from specserve_server.templates.model_template import read_model_template
from specserve_server.wire.decode_body import decode_body

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_SECONDS = 10.0
"""That a response to these bodies may take."""
TEXT = "def read_settings(path):\n    "
CONCURRENT: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": TEXT, "temperature": 0, "logprobs": 3}),
    (COMPLETIONS, {"prompt": TEXT, "seed": 7, "stream": True}),
    (COMPLETIONS, {"prompt": TEXT * 3, "temperature": 0, "stream": True, "model": ADAPTER}),
    (COMPLETIONS, {"prompt": [5, 6, 7] * 30, "seed": 8, "temperature": 0.7, "frequency_penalty": 1.0, "n": 2}),
    (COMPLETIONS, {"prompt": TEXT, "temperature": 0, "echo": True, "logprobs": 1, "prompt_logprobs": 2}),
    (CHAT, {"messages": [{"role": "user", "content": TEXT}], "seed": 9, "top_p": 0.9, "logprobs": True}),
    (CHAT, {"messages": [{"role": "user", "content": "a"}], "temperature": 0, "stream": True, "stop": ["e"]}),
]  # fmt: skip


class Running(NamedTuple):
    """A server, and requests with the responses that they get alone, in turn."""

    server: LiveServer
    expected: Iterator[tuple[FuzzCase, Any]]


def concurrent_request(path: str, body: dict[str, Any]) -> FuzzCase:
    whole = {"max_tokens": 24, "return_token_ids": True, "return_speculation": True, "ignore_eos": True, **body}
    return FuzzCase(path, json.dumps(whole).encode(), {}, valid=True)


@pytest.fixture(scope="module")
def running(toy_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Alone is: on a server of their own, one after the other, without drafts."""
    alone = {}
    with serving(toy_model, tmp_path_factory.mktemp("alone"), drafts=False) as server:
        for case in itertools.starmap(concurrent_request, CONCURRENT):
            alone[case.data] = case, decided(case, server.call(send(server, case)))
    with serving(toy_model, tmp_path_factory.mktemp("fuzzed")) as server:
        yield Running(server, itertools.cycle(alone.values()))
        server.call(until_idle(server))


async def send(server: LiveServer, case: FuzzCase) -> Response | None:
    """None where the client disconnected."""
    start = time.perf_counter()
    async with server.client.post(case.path, data=case.data, headers=case.headers) as response:
        if case.disconnect_after is not None:
            for _ in range(case.disconnect_after):
                await response.content.readany()
            return response.close()
        data = await response.read()
    return Response(response.status, response.content_type, data, time.perf_counter() - start)


async def disconnect_early(server: LiveServer, case: FuzzCase) -> None:
    """Before the headers of a response."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.003):
            await send(server, case)


def decided(case: FuzzCase, response: Response) -> Any:
    """What must be the same each time: all but which draft tokens were accepted and whose."""
    check_response(case, response)
    choices, _ = read_choices(json.loads(case.data), response)
    return [without_speculation(choice) for choice in choices]


def is_reproducible(case: FuzzCase, response: Response) -> bool:
    """Greedy or seeded: the same body must get the same response."""
    sent = json.loads(case.data) if case.valid and case.path in (COMPLETIONS, CHAT) else {}
    return response.status == 200 and (sent.get("seed") is not None or sent.get("temperature") == 0)


async def until_idle(server: LiveServer) -> None:
    """Every request is forgotten, with its pin, and no block is lost."""
    async with asyncio.timeout(120):
        while server.engine.mailboxes or server.engine.aborting or server.engine.engine.has_work:
            await asyncio.sleep(0.005)
    server.engine.engine.check_integrity()


async def send_concurrently(running: Running, *cases: FuzzCase) -> None:
    """All at once, with two other requests; then, alone, each whose response must be the same again."""
    server = running.server
    beside = [next(running.expected), next(running.expected)]
    sending = [disconnect_early(server, case) if case.disconnect_after == 0 else send(server, case) for case in cases]
    *responses, one, other = await asyncio.gather(*sending, *(send(server, case) for case, _ in beside))
    for (case, expected), got in zip(beside, (one, other), strict=True):
        assert decided(case, got) == expected, "a concurrent request got another response"
    for case, response in zip(cases, responses, strict=True):
        if response is not None:
            check_response(case, response)
            assert response.seconds < MAX_SECONDS
            if is_reproducible(case, response):
                assert decided(case, await send(server, case)) == decided(case, response)
    async with server.client.get("/health") as health:
        assert health.status == 200


FUZZ = settings(
    derandomize=True,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(FUZZ, max_examples=200)
@given(case=cases)
def test_no_body_harms_the_engine_or_a_concurrent_request(running: Running, case: FuzzCase) -> None:
    running.server.call(send_concurrently(running, case))


@cache
def served(engine: Any) -> Any:
    """As the routes have it."""
    return templated(engine, read_model_template(engine.tokenizer.path))


def prepare(engine: Any, path: str, data: bytes) -> None:
    """What the server does with a body before it generates."""
    if path == COMPLETIONS:
        serving_completion.prepare_request(engine, decode_body(data, CompletionBody), "toy", "")
    elif path == CHAT:
        serving_chat.prepare_request(engine, decode_body(data, ChatBody), "toy", "")
    elif path == TOKENIZE:
        tokenization.tokenize_response(engine, decode_body(data, TokenizeBody))
    else:
        engine.tokenizer.decode(decode_body(data, DetokenizeBody).tokens or ())


@settings(FUZZ, max_examples=500)
@given(case=bodies)
def test_a_body_becomes_a_request_or_an_error_of_the_client(running: Running, case: FuzzCase) -> None:
    becomes_a_request_or_is_refused(running, case)


def becomes_a_request_or_is_refused(running: Running, case: FuzzCase) -> None:
    """Decoding, defaults and admission alone: nothing but a RequestError comes of any body."""
    refused = ""
    try:
        prepare(served(running.server.engine), case.path, case.data)
    except RequestError as error:
        refused = str(error)
    assert not (case.valid and refused)
    refused.encode()


@pytest.mark.sweep
@settings(FUZZ, max_examples=2000)
@given(case=bodies)
def test_each_body_of_thousands_becomes_a_request_or_an_error_of_the_client(running: Running, case: FuzzCase) -> None:
    becomes_a_request_or_is_refused(running, case)


@pytest.mark.sweep
@settings(FUZZ, max_examples=5000)
@given(case=cases)
def test_no_body_of_thousands_harms_the_engine_or_a_concurrent_request(running: Running, case: FuzzCase) -> None:
    running.server.call(send_concurrently(running, case))


@pytest.mark.sweep
@settings(FUZZ, max_examples=500)
@given(burst=st.lists(cases, min_size=3, max_size=9))
def test_no_burst_harms_the_engine_or_a_concurrent_request(running: Running, burst: list[FuzzCase]) -> None:
    running.server.call(send_concurrently(running, *burst))
