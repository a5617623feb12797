"""A server of the page's files over canned answers, in a thread of its own. What a test gives it, it sends.

Speaks as much of the API as the page uses. Requests to it are kept, for tests of what the page sends.
"""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiohttp import web

from specserve_page.routes import page_routes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

MODELS = [{"id": "toy", "parent": None}, {"id": "tuned", "parent": "toy"}]
ENGINE = {"model": "toy", "kernels": "fake (cpu)", "drafters": ["ngram", "eagle"], "lossless": True}
PLUGINS = [
    {"name": "ngram", "enabled": True, "features": ["draft.tree"], "reason": None},
    {"name": "eagle", "enabled": True, "features": ["draft.chain"], "reason": None},
    {"name": "lora", "enabled": False, "features": ["lora.target"], "reason": None},
]
PAIRS = [
    {"plugins": ["ngram", "eagle"], "verdict": "compatible", "sentence": "ngram works with eagle: both may draft."},
    {"plugins": ["ngram", "lora"], "verdict": "conflict", "sentence": "ngram cannot run with lora: <b>for a test</b>."},
]

Json = dict[str, Any]


def token(id: int, text: str, drafter: str | None = None) -> Json:
    return {"id": id, "text": text, "drafter": drafter}


def node(
    id: int, text: str, drafter: str, *, survival: float | None, accepted: bool, parent: int | None = None
) -> Json:
    return {**token(id, text, drafter), "survival": survival, "accepted": accepted, "parent": parent}


def step(tokens: Sequence[Json], draft: Sequence[Json] = (), reason: str | None = None) -> Json:
    stopped = "no_draft" if not draft else "draft_ended" if all(one["accepted"] for one in draft) else "rejected"
    return {"tokens": tokens, "draft": draft, "stopped": stopped, "reason": reason, "milliseconds": 2.5}


STEPS = (
    step([token(1, "The")], reason="ngram found nothing to go on from"),
    step(
        [token(2, " cat", "ngram"), token(3, " sat", "eagle"), token(4, " on")],
        [
            node(2, " cat", "ngram", survival=0.9, accepted=True),
            node(3, " sat", "eagle", survival=0.6, accepted=True, parent=0),
            node(9, " ran", "eagle", survival=0.3, accepted=False, parent=0),
        ],
    ),
    step([token(5, " it", "ngram"), token(6, ".")], [node(5, " it", "ngram", survival=None, accepted=True)]),
)


@dataclass(slots=True)
class Canned:
    """What is answered. `error`: in place of an answer, with its status; `last`: the event after the steps."""

    steps: Sequence[Json] = STEPS
    plain_steps: Sequence[Json] | None = None
    """Where speculation is off; None: the same tokens, one a step."""
    error: tuple[int, Json] | None = None
    last: Json | None = None
    key: str | None = None
    loading: Json | None = None
    """How far, while it loads."""
    version: str = "1"
    """Of every plugin."""
    pause: float = 0.01
    """Seconds between two steps."""
    bodies: list[Json] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)

    def steps_for(self, body: Json) -> Sequence[Json]:
        if (body.get("speculation") or {}).get("enabled", True):
            return self.steps
        if self.plain_steps is not None:
            return self.plain_steps
        return [step([{**one, "drafter": None}]) for each in self.steps for one in each["tokens"]]


def fake_server(canned: Canned) -> AbstractContextManager[str]:
    """Its URL."""
    return served(canned_application(canned))


@contextmanager
def served(app: web.Application) -> Iterator[str]:
    """In a thread of its own; its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="fake-server")
    thread.start()
    try:
        runner, url = asyncio.run_coroutine_threadsafe(start(app), loop).result(10)
        try:
            yield url
        finally:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def canned_application(canned: Canned) -> web.Application:
    app = web.Application(middlewares=[recorded(canned)])
    app.add_routes(page_routes())
    app.add_routes(
        [
            web.get("/v1/models", constant({"data": MODELS})),
            web.get("/v1/plugins", described(canned)),
            web.get("/v1/plugins/pairs", constant({"data": PAIRS})),
            web.post("/v1/completions", answers(canned, is_chat=False)),
            web.post("/v1/chat/completions", answers(canned, is_chat=True)),
        ]
    )
    return app


async def start(app: web.Application) -> tuple[web.AppRunner, str]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}/"


def recorded(canned: Canned) -> Any:
    """Keeps what is asked, and refuses what comes without the key."""

    @web.middleware
    async def record(request: web.Request, handler: Any) -> web.StreamResponse:
        canned.paths.append(request.path)
        given = request.headers.get("Authorization")
        if request.path.startswith("/v1/") and canned.key is not None and given != f"Bearer {canned.key}":
            return web.json_response({"error": {"message": "the API key is wrong", "type": "auth"}}, status=401)
        if canned.loading is not None and request.path == "/health":
            return web.json_response({"status": "loading", "progress": canned.loading}, status=503)
        if canned.loading is not None and request.path.startswith("/v1/"):
            return web.json_response({"error": {"message": "the server is loading"}}, status=503)
        return await handler(request)

    return record


def described(canned: Canned) -> Any:
    async def answer(request: web.Request) -> web.Response:
        told = {"version": canned.version, "distribution": "fake", "features_off": {}}
        return web.json_response({"data": [{**told, **one} for one in PLUGINS], "engine": ENGINE})

    return answer


def constant(body: Json) -> Any:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(body)

    return answer


def answers(canned: Canned, *, is_chat: bool) -> Any:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        canned.bodies.append(body)
        if canned.error is not None:
            status, error = canned.error
            return web.json_response({"error": error}, status=status, headers={"X-Request-Id": "r-17"})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in events(canned, body, is_chat=is_chat):
            await response.write(f"data: {json.dumps(event)}\n\n".encode())
            await asyncio.sleep(canned.pause)
        await response.write(b"data: [DONE]\n\n")
        return response

    return answer


def events(canned: Canned, body: Json, *, is_chat: bool) -> Iterator[Json]:
    steps = canned.steps_for(body)
    for number, each in enumerate(steps):
        text = "".join(one["text"] for one in each["tokens"])
        choice: Json = {"index": 0, "delta": {"content": text}} if is_chat else {"index": 0, "text": text}
        is_last = number + 1 == len(steps) and canned.last is None
        choice |= {"finish_reason": "stop" if is_last else None, "speculation": {"steps": [each]}}
        yield {"choices": [choice]}
    if canned.last is not None:
        yield canned.last
    yield {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": sum(len(s["tokens"]) for s in steps)}}
