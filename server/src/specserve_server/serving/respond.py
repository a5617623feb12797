"""From an HTTP request to its generated response: one JSON body, or a stream of events.

Owns what completions and chat have in common; `prepared_request` serves all APIs. Closing the engine's streams on every
way out aborts the requests of a client that disconnects.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from specserve_server.bodies.requests import SamplingBody
from specserve_server.errors import create_error_response
from specserve_server.generation.output_streams import stream_outputs
from specserve_server.generation.usage import speculation_metrics, usage
from specserve_server.state.model_lookup import pinned_model
from specserve_server.state.request_record import RECORD, Generation
from specserve_server.state.server_state import ready_engine, served_model_names, state_of
from specserve_server.wire.json_response import json_response
from specserve_server.wire.read_body import read_body
from specserve_server.wire.sse import EventStream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aiohttp import web

    from specserve_checks.json_types import JsonObject
    from specserve_server.engine_client import EngineClient, ServedEngine
    from specserve_server.generation.choices import Choice, CompletionOutput
    from specserve_server.generation.prepared_request import PreparedRequest
SERVICE_TIER = "default"
"""The only one: whatever a body asks for."""


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

    def __call__(self, engine: ServedEngine, body: M_contra, model: str, adapter: str, /) -> P_co: ...


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
    request: web.Request, engine: ServedEngine, body: M, prepare: Prepare[M, P]
) -> AsyncIterator[P]:
    """Pin the body's model for the block, and prepare the request in a thread: it tokenizes."""
    async with pinned_model(engine, body.model, served_model_names(request)) as model:
        yield await asyncio.to_thread(prepare, engine, body, model.name, model.adapter)


async def send_response(request: web.Request, engine: EngineClient, prepared: PreparedRequest) -> web.StreamResponse:
    groups, n = state_of(request).groups, prepared.body.num_choices
    request[RECORD].generation = Generation(prepared.id, prepared.model, prepared.choices, n)
    fixed: JsonObject = {"system_fingerprint": state_of(request).fingerprint, "service_tier": SERVICE_TIER}
    if not prepared.body.stream:
        body = await full_response(engine, prepared, fixed)
        groups.count(prepared.choices, n)
        return json_response(body)
    events = EventStream(request)
    with suppress(ConnectionResetError):  # the client has disconnected: its requests are aborted by now
        async with events:
            await stream_response(events, engine, prepared, fixed)
    groups.count(prepared.choices, n)
    return events.response


async def full_response(engine: EngineClient, prepared: PreparedRequest, fixed: JsonObject) -> JsonObject:
    async with aclosing(stream_outputs(engine, prepared.choices)) as outputs:
        async for choice, output in outputs:
            choice.outputs.append(output)
    formatter, choices = prepared.formatter, prepared.choices
    return {
        **prepared.common_fields(formatter.object_type, int(time.time())),
        **fixed,
        "choices": [formatter.full_choice(choice, choice.full_output()) for choice in choices],
        "usage": usage(choices, prepared.body.num_choices),
        **formatter.extra_fields(choices[0]),
        **speculation_metrics(choices),
    }


async def stream_response(
    events: EventStream, engine: EngineClient, prepared: PreparedRequest, fixed: JsonObject
) -> None:
    """Chunks, then usage where requested. An error becomes an event; one that precedes the first event, such as a full
    queue, is raised and has a status of its own."""
    try:
        await send_chunks(events, engine, prepared, fixed)
    except ConnectionResetError:
        raise
    except Exception as error:  # the status 200 is sent already
        if not events.started:
            raise
        await events.send(create_error_response(error).body)


async def send_chunks(events: EventStream, engine: EngineClient, prepared: PreparedRequest, fixed: JsonObject) -> None:
    """One event per output that has something to show."""
    formatter, choices, n = prepared.formatter, prepared.choices, prepared.body.num_choices
    options = prepared.body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    continuous_usage = include_usage and options is not None and bool(options.continuous_usage_stats)
    common = {**prepared.common_fields(formatter.chunk_object_type, int(time.time())), **fixed}
    started: set[int] = set()
    async with aclosing(stream_outputs(engine, choices)) as outputs:
        async for choice, output in outputs:
            first = choice.index not in started
            if not is_visible(prepared, choice, output, first):
                continue
            shown = formatter.chunk_choice(choice, output, first=first)
            if shown is None:
                continue
            started.add(choice.index)
            chunk: JsonObject = {**common, "choices": [shown]}
            if first and choice.index == 0:
                chunk |= formatter.extra_fields(choice)
            if continuous_usage:
                chunk["usage"] = usage(choices, n)
            await events.send(chunk)
    if include_usage:
        await events.send({**common, "choices": [], "usage": usage(choices, n), **speculation_metrics(choices)})


def is_visible(prepared: PreparedRequest, choice: Choice, output: CompletionOutput, first: bool) -> bool:
    """False while the text waits for the rest of a character or of a possible stop string."""
    return bool(
        output.text
        or output.reasoning
        or output.finish_reason
        or output.logprobs
        or (output.token_ids and prepared.body.return_token_ids)
        or (first and choice.echo_text)
    )
