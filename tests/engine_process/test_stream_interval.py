"""--stream-interval: the events of a stream have as many tokens, in both forms of the server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from server_process import FORMS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from server_process import ServerProcess

BODY = {"prompt": "one two three", "max_tokens": 22, "temperature": 0, "ignore_eos": True, "return_token_ids": True}

TRIES = 10
"""On a busy machine the server may be late, and sends what waits as one event."""


@pytest.mark.parametrize("form", FORMS)
async def test_events_have_so_many_tokens_behind_the_first(
    start_server: Callable[..., ServerProcess], toy_model: Path, form: str
) -> None:
    server = start_server(toy_model, f"--{form}", "--stream-interval", "5")
    await asyncio.to_thread(server.wait_until_ready)
    async with aiohttp.ClientSession(server.url) as session:
        async with session.post("/v1/completions", json=BODY) as response:
            whole = (await response.json())["choices"][0]["token_ids"]
        for _ in range(TRIES):
            events = await events_of(session)
            assert [token for tokens in events for token in tokens] == whole
            if len(events[0]) == 1:
                break
    assert len(events[0]) == 1
    assert all(len(tokens) >= 5 for tokens in events[1:-1])
    assert len(events) <= 6


async def events_of(session: aiohttp.ClientSession) -> list[list[int]]:
    """The tokens of each event."""
    async with session.post("/v1/completions", json={**BODY, "stream": True}) as response:
        lines = [line async for line in response.content if line.startswith(b"data: {")]
    return [tokens for line in lines if (tokens := token_ids(json.loads(line.removeprefix(b"data: "))))]


def token_ids(event: dict[str, Any]) -> list[int]:
    (choice,) = event["choices"]
    found: list[int] = choice["token_ids"]
    return found
