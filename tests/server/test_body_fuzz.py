"""Whatever body comes, over HTTP to a real engine: no 500, no dead engine, and no neighbour's answer changes."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from body_strategies import CHAT, COMPLETIONS, TOKENIZE, Shot, bodies, shots
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from live_server import ADAPTER, LiveServer, serving
from response_checks import Answer, check_answer, read_choices

from specserve.errors import RequestError
from specserve.server import serving_chat, serving_completion, tokenization
from specserve.server.decode_body import decode_body
from specserve.server.request_bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW = 10.0
"""Seconds that no answer to these bodies may take."""
TEXT = "def read_settings(path):\n    "
NEIGHBOURS: list[tuple[str, dict[str, Any]]] = [
    (COMPLETIONS, {"prompt": TEXT, "temperature": 0, "logprobs": 3}),
    (COMPLETIONS, {"prompt": TEXT, "seed": 7, "stream": True}),
    (COMPLETIONS, {"prompt": TEXT * 3, "temperature": 0, "stream": True, "model": ADAPTER}),
    (COMPLETIONS, {"prompt": [5, 6, 7] * 30, "seed": 8, "temperature": 0.7, "frequency_penalty": 1.0, "n": 2}),
    (COMPLETIONS, {"prompt": TEXT, "temperature": 0, "echo": True, "logprobs": 1, "prompt_logprobs": 2}),
    (CHAT, {"messages": [{"role": "user", "content": TEXT}], "seed": 9, "top_p": 0.9, "logprobs": True}),
    (CHAT, {"messages": [{"role": "user", "content": "a"}], "temperature": 0, "stream": True, "stop": ["e"]}),
]  # fmt: skip


class Running(NamedTuple):
    """A server under fire and what its neighbours get alone, in turn."""

    server: LiveServer
    expected: Iterator[tuple[Shot, Any]]


def neighbour(path: str, body: dict[str, Any]) -> Shot:
    whole = {"max_tokens": 24, "return_token_ids": True, "ignore_eos": True, **body}
    return Shot(path, json.dumps(whole).encode(), {}, clean=True)


@pytest.fixture(scope="module")
def running(toy_model: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Alone is: on a server of their own, one after the other, without drafts."""
    alone = {}
    with serving(toy_model, tmp_path_factory.mktemp("alone"), drafts=False) as server:
        for shot in itertools.starmap(neighbour, NEIGHBOURS):
            alone[shot.data] = shot, decided(shot, server.call(fire(server, shot)))
    with serving(toy_model, tmp_path_factory.mktemp("fuzzed")) as server:
        yield Running(server, itertools.cycle(alone.values()))
        server.call(until_idle(server))


async def fire(server: LiveServer, shot: Shot) -> Answer | None:
    """None where the client hung up."""
    begun = time.perf_counter()
    async with server.client.post(shot.path, data=shot.data, headers=shot.headers) as answer:
        if shot.hang_up is not None:
            for _ in range(shot.hang_up):
                await answer.content.readany()
            return answer.close()
        data = await answer.read()
    return Answer(answer.status, answer.content_type, data, time.perf_counter() - begun)


async def hang_up_early(server: LiveServer, shot: Shot) -> None:
    """Before the headers of an answer."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.003):
            await fire(server, shot)


def decided(shot: Shot, answer: Answer) -> Any:
    """What must be the same each time: all but which tokens were guessed."""
    check_answer(shot, answer)
    choices, _ = read_choices(json.loads(shot.data), answer)
    return [{key: value for key, value in choice.items() if key != "accepted"} for choice in choices]


def repeats(shot: Shot, answer: Answer) -> bool:
    """Greedy or seeded, so that the same body must have the same answer."""
    sent = json.loads(shot.data) if shot.clean and shot.path in (COMPLETIONS, CHAT) else {}
    return answer.status == 200 and (sent.get("seed") is not None or sent.get("temperature") == 0)


async def until_idle(server: LiveServer) -> None:
    """Every request is forgotten, with its pin, and no block is lost."""
    async with asyncio.timeout(20):
        while server.engine.mailboxes or server.engine.aborting or server.engine.engine.has_work:
            await asyncio.sleep(0.005)
    server.engine.engine.check_integrity()


async def fire_among_neighbours(running: Running, *shots: Shot) -> None:
    """All at once, with two neighbours; then each that must repeat its answer again, alone."""
    server = running.server
    beside = [next(running.expected), next(running.expected)]
    shooting = [hang_up_early(server, shot) if shot.hang_up == 0 else fire(server, shot) for shot in shots]
    *answers, one, other = await asyncio.gather(*shooting, *(fire(server, shot) for shot, _ in beside))
    for (shot, expected), got in zip(beside, (one, other), strict=True):
        assert decided(shot, got) == expected, "a neighbour's answer changed"
    for shot, answer in zip(shots, answers, strict=True):
        if answer is not None:
            check_answer(shot, answer)
            assert answer.seconds < SLOW
            if repeats(shot, answer):
                assert decided(shot, await fire(server, shot)) == decided(shot, answer)
    async with server.client.get("/health") as health:
        assert health.status == 200


FUZZ = settings(
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@settings(FUZZ, max_examples=200)
@given(shot=shots)
def test_no_body_harms_the_engine_or_a_neighbour(running: Running, shot: Shot) -> None:
    running.server.call(fire_among_neighbours(running, shot))


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


@settings(FUZZ, max_examples=2000)
@given(shot=bodies)
def test_a_body_becomes_a_request_or_an_error_of_the_client(running: Running, shot: Shot) -> None:
    """Decoding, defaults and admission alone: nothing but a RequestError comes of any body."""
    refused = ""
    try:
        prepare(running.server.engine, shot.path, shot.data)
    except RequestError as error:
        refused = str(error)
    assert not (shot.clean and refused)
    refused.encode()


@pytest.mark.sweep
@settings(FUZZ, max_examples=5000)
@given(shot=shots)
def test_no_body_of_thousands_harms_the_engine_or_a_neighbour(running: Running, shot: Shot) -> None:
    running.server.call(fire_among_neighbours(running, shot))


@pytest.mark.sweep
@settings(FUZZ, max_examples=500)
@given(volley=st.lists(shots, min_size=3, max_size=9))
def test_no_volley_harms_the_engine_or_a_neighbour(running: Running, volley: list[Shot]) -> None:
    running.server.call(fire_among_neighbours(running, *volley))
