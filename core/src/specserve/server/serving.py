"""Running the choices of one client request and answering: one JSON body, or a stream of events.

Owns what completions and chat have in common; their two `Shape`s own what differs. Closing the engine's
streams on every way out is what aborts a request whose client went away.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from specserve.namespaces import add_salt
from specserve.server.choices import run_choices, speculation_metrics, usage
from specserve.server.errors import describe_error, json_response
from specserve.server.model_lookup import lease_model
from specserve.server.request_bodies import SamplingBody, decode_body
from specserve.server.sse import EventStream
from specserve.server.state import engine_of, served_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from specserve.server.choices import Choice, Piece
    from specserve.server.engine_client import EngineClient


B = TypeVar("B", bound=SamplingBody)
B_contra = TypeVar("B_contra", bound=SamplingBody, contravariant=True)


class Shape(Protocol):
    """How one endpoint writes choices."""

    @property
    def whole_object(self) -> str: ...

    @property
    def chunk_object(self) -> str: ...

    def whole(self, choice: Choice, piece: Piece) -> dict[str, Any]: ...

    def chunk(self, choice: Choice, piece: Piece, *, first: bool) -> dict[str, Any]: ...

    def top_level(self, choice: Choice, /) -> dict[str, Any]:
        """Extra fields beside `choices`, from the first choice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One client request, ready to run."""

    id: str
    model: str
    body: SamplingBody
    shape: Shape
    choices: Sequence[Choice]

    def head(self, kind: str, created: int) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": created, "model": self.model}

    @property
    def n(self) -> int:
        return self.body.n or 1


def new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


class JobMaker(Protocol[B_contra]):
    """From a body, the model's name and its namespace to a job; raises what is wrong with the body."""

    def __call__(self, engine: EngineClient, body: B_contra, model: str, namespace: str, /) -> Job: ...


async def answer(request: web.Request, kind: type[B], make_job: JobMaker[B]) -> web.StreamResponse:
    """Read the body, pin its model, make the job in a thread (it tokenises) and answer."""
    engine = engine_of(request)
    body = decode_body(await request.read(), kind)
    async with lease_model(engine, body.model, served_name(request)) as model:
        job = await asyncio.to_thread(make_job, engine, body, model.name, add_salt(model.namespace, body.cache_salt))
        return await respond(request, engine, job)


async def respond(request: web.Request, engine: EngineClient, job: Job) -> web.StreamResponse:
    if not job.body.stream:
        return json_response(await whole_body(engine, job))
    events = EventStream(request)
    with suppress(ConnectionResetError):  # the client is gone: what ran is aborted, nobody is to be told
        async with events:
            await send_chunks(events, engine, job)
    return events.response


async def whole_body(engine: EngineClient, job: Job) -> dict[str, Any]:
    async with aclosing(run_choices(engine, job.choices)) as pieces:
        async for choice, piece in pieces:
            choice.pieces.append(piece)
    return {
        **job.head(job.shape.whole_object, int(time.time())),
        "choices": [job.shape.whole(choice, choice.whole()) for choice in job.choices],
        "usage": usage(job.choices, job.n),
        **job.shape.top_level(job.choices[0]),
        **speculation_metrics(job.choices),
    }


async def send_chunks(events: EventStream, engine: EngineClient, job: Job) -> None:
    """One event per piece that shows something, then usage where asked. Errors become an event, but for one that
    precedes the first event: such as a full queue, it is answered as without a stream."""
    options = job.body.stream_options
    with_usage = options is not None and bool(options.include_usage)
    continuous = with_usage and options is not None and bool(options.continuous_usage_stats)
    head = job.head(job.shape.chunk_object, int(time.time()))
    opened: set[int] = set()
    try:
        async with aclosing(run_choices(engine, job.choices)) as pieces:
            async for choice, piece in pieces:
                first = choice.index not in opened
                if not shows_something(job, choice, piece, first):
                    continue
                opened.add(choice.index)
                chunk = {**head, "choices": [job.shape.chunk(choice, piece, first=first)]}
                if first and choice.index == 0:
                    chunk |= job.shape.top_level(choice)
                if continuous:
                    chunk["usage"] = usage(job.choices, job.n)
                await events.send(chunk)
        if with_usage:
            final = {"choices": [], "usage": usage(job.choices, job.n), **speculation_metrics(job.choices)}
            await events.send({**head, **final})
    except ConnectionResetError:
        raise
    except Exception as error:  # the border: after the 200 an error is an event
        if not events.begun:
            raise
        _, body, _ = describe_error(error)
        await events.send(body)


def shows_something(job: Job, choice: Choice, piece: Piece, first: bool) -> bool:
    """False while the text waits for the rest of a character or of a possible stop string."""
    return bool(
        piece.text
        or piece.finish_reason
        or piece.logprobs
        or (piece.tokens and job.body.return_token_ids)
        or (first and choice.prompt_text)
    )
