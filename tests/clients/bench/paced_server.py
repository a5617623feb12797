"""A server whose answers come at set times, so that every figure of a run is known beforehand.

It sends what real servers send: events with several tokens, events that are cut in two, a last event without text,
usage behind it, and an end that comes later. `python paced_server.py` prints its address once it listens.
"""

from __future__ import annotations

import asyncio
import json

from aiohttp import web

FIRST, GAP, END = 0.4, 0.025, 0.02
"""Seconds: to the first event with tokens, between further ones, and from the last one to the end."""
NUM_EVENTS = 10
NUM_TOKENS = 16
"""As `usage` tells: more than events, as with draft tokens."""
NUM_PROMPT_TOKENS = 11


def event(fields: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def token(text: str, end: str | None = None) -> bytes:
    return event({"id": "x", "object": "text_completion", "choices": [choice(text, end)], "usage": None})


def choice(text: str, end: str | None) -> dict[str, object]:
    return {"index": 0, "text": text, "logprobs": None, "finish_reason": end}


async def answer(request: web.Request) -> web.StreamResponse:
    """Times count from the request's arrival, so that nothing adds up."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    body = await request.json()
    assert body["stream"]
    assert body["max_tokens"] == NUM_TOKENS
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(NUM_EVENTS):
        at = began + FIRST + number * GAP
        last = number == NUM_EVENTS - 1
        sent = token("" if last else f"word {number} ", "length" if last else None)
        await asyncio.sleep(max(0.0, at - GAP / 2 - loop.time()))
        await response.write(sent[:20])  # an event is there when all of it is
        await asyncio.sleep(max(0.0, at - loop.time()))
        await response.write(sent[20:])
    usage = {"prompt_tokens": NUM_PROMPT_TOKENS, "completion_tokens": NUM_TOKENS, "total_tokens": 27}
    await asyncio.sleep(END)
    await response.write(event({"id": "x", "choices": [], "usage": usage}) + b"data: [DONE]\n\n")
    return response


async def models(_: web.Request) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": "paced", "object": "model"}]})


async def main() -> None:
    app = web.Application()
    app.router.add_post("/v1/completions", answer)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(f"ready on http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
