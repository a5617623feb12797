"""A request over HTTP: sent whole or as a stream, read as an `Answer`; when the client leaves is its own decision."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from soak.answers import Answer, add_event, read_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp


class Refused(Exception):
    """Another status than 200, with an error body."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        super().__init__(f"{status}: {error['message']}")
        self.status, self.error = status, error


class BrokenOff(Exception):
    """A stream ended without its last event, or with an error."""


async def check_status(answer: aiohttp.ClientResponse) -> None:
    """Any error has a body that says what is wrong."""
    if answer.status != 200:
        raise Refused(answer.status, json.loads(await answer.text())["error"])


async def ask(session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> tuple[Answer, dict[str, Any]]:
    async with session.post(path, json=body) as answer:
        await check_status(answer)
        raw = await answer.json()
        return read_body(path, raw), raw


async def stream(session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> AsyncIterator[Answer]:
    """The answer so far, after every event. Closing the generator closes the connection."""
    async with session.post(path, json={**body, "stream": True}) as response:
        await check_status(response)
        answer, data = Answer(), b""
        try:
            async for chunk in response.content.iter_any():
                *blocks, data = (data + chunk).split(b"\n\n")
                for block in blocks:
                    read_block(path, answer, block)
                    yield answer
            if data or not answer.ended:
                raise BrokenOff(f"the stream ended without its last event, behind {data!r}")
        finally:
            if not answer.ended:
                response.close()


def read_block(path: str, answer: Answer, block: bytes) -> None:
    text = block.decode().split("data: ", 1)[1]
    if text == "[DONE]":
        answer.ended = True
    else:
        add_event(path, answer, json.loads(text))
    if answer.error is not None:
        raise BrokenOff(f"an error came in the stream: {answer.error}")


async def is_idle(session: aiohttp.ClientSession, seconds: float) -> bool:
    """Waits until no request runs or waits."""
    try:
        async with asyncio.timeout(seconds):
            while (await (await session.get("/load")).json())["server_load"]:
                await asyncio.sleep(0.05)
    except TimeoutError:
        return False
    return True
