"""From an HTTP request to its generated response: one JSON body, or a stream of events.

Owns what completions and chat have in common; `prepared_request` serves all APIs. Closing the engine's streams on every
way out aborts the requests of a client that disconnects.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from specserve_server.bodies.requests import SamplingBody
from specserve_server.generation.output_streams import stream_outputs
from specserve_server.generation.speculation_metrics import speculation_metrics
from specserve_server.generation.usage import usage
from specserve_server.state.model_lookup import pinned_model
from specserve_server.state.request_record import RECORD, Generation, noted_error
from specserve_server.state.server_state import ready_engine, served_model_names, state_of
from specserve_server.wire.json_response import json_response
from specserve_server.wire.read_body import read_body
from specserve_server.wire.sse import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from specserve_server.engine_client import EngineClient
    from specserve_server.generation.answer_fields import AnswerFields
    from specserve_server.generation.choices import Choice, CompletionOutput
    from specserve_server.generation.prepared_request import PreparedRequest


class ModelBody(Protocol):
    """A body that names a model."""

    @property
    def model(self) -> str | None: ...


B = TypeVar("B", bound=SamplingBody)
M_contra = TypeVar("M_contra", bound=ModelBody, contravariant=True)
M = TypeVar("M", bound=ModelBody)
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


class Prepare(Protocol[M_contra, P_co]):
    """From a body, the model's name and its adapter to a request; raises RequestError where the body is wrong."""

    def __call__(self, engine: EngineClient, body: M_contra, model: str, adapter: str, /) -> P_co: ...


async def serve_generation(
    request: web.Request, body_type: type[B], prepare: Prepare[B, PreparedRequest]
) -> web.StreamResponse:
    """Read the body, prepare its request, generate and respond."""
    engine = ready_engine(request)
    body = await read_body(request, body_type)
    async with prepared_request(request, engine, body, prepare) as prepared:
        return await send_response(request, engine, prepared)


@asynccontextmanager
async def prepared_request(
    request: web.Request, engine: EngineClient, body: M, prepare: Prepare[M, P]
) -> AsyncIterator[P]:
    """Pin the body's model for the block, and prepare the request in a thread: it tokenizes."""
    async with pinned_model(engine, body.model, served_model_names(request)) as model:
        yield await asyncio.to_thread(prepare, engine, body, model.name, model.adapter)


async def send_response(request: web.Request, engine: EngineClient, prepared: PreparedRequest) -> web.StreamResponse:
    groups, n = state_of(request).groups, prepared.body.num_choices
    request[RECORD].generation = Generation(
        prepared.id, prepared.model, prepared.choices, bool(prepared.body.stream), n
    )
    fingerprint = state_of(request).fingerprint
    if not prepared.body.stream:
        body = await full_response(engine, prepared, fingerprint)
        groups.count(prepared.choices, n)
        return json_response(body)
    events = EventStream(request)
    with suppress(ConnectionResetError):  # the client has disconnected: its requests are aborted by now
        async with events:
            await stream_response(events, engine, prepared, fingerprint)
    groups.count(prepared.choices, n)
    return events.response


async def full_response(engine: EngineClient, prepared: PreparedRequest, fingerprint: str) -> AnswerFields:
    async with aclosing(stream_outputs(engine, prepared.choices)) as outputs:
        async for choice, output in outputs:
            choice.outputs.append(output)
    formatter = prepared.formatter
    return formatter.answer(prepared.head(formatter.object_type, fingerprint), prepared.choices)


async def stream_response(
    events: EventStream, engine: EngineClient, prepared: PreparedRequest, fingerprint: str
) -> None:
    """Chunks, then usage where requested. An error becomes an event; one that precedes the first event, such as a full
    queue, is raised and has a status of its own."""
    try:
        await send_chunks(events, engine, prepared, fingerprint)
    except ConnectionResetError:
        raise
    except Exception as error:  # the status 200 is sent already
        if not events.started:
            raise
        await events.send(noted_error(events.request, error).body)


async def send_chunks(events: EventStream, engine: EngineClient, prepared: PreparedRequest, fingerprint: str) -> None:
    """One event per output that has something to show."""
    formatter, choices, n = prepared.formatter, prepared.choices, prepared.body.num_choices
    options = prepared.body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    continuous_usage = include_usage and options is not None and bool(options.continuous_usage_stats)
    head = prepared.head(formatter.chunk_object_type, fingerprint)
    started: set[int] = set()
    async with aclosing(stream_outputs(engine, choices)) as outputs:
        async for choice, output in outputs:
            first = choice.index not in started
            if not is_visible(prepared, choice, output, first):
                continue
            chunk = formatter.chunk(head, choice, output, first=first)
            if chunk is None:
                continue
            started.add(choice.index)
            if continuous_usage:
                chunk.usage = usage(choices, n)
            await events.send(chunk)
    if include_usage:
        last = formatter.last_chunk(head)
        last.usage, last.metrics = usage(choices, n), speculation_metrics(choices)
        await events.send(last)


def is_visible(prepared: PreparedRequest, choice: Choice, output: CompletionOutput, first: bool) -> bool:
    """False while the text waits for the rest of a character or of a possible stop string."""
    return bool(
        output.text
        or output.reasoning
        or output.finish_reason
        or output.logprobs
        or (output.token_ids and prepared.body.returns_every_token)
        or (first and choice.echo_text)
    )
