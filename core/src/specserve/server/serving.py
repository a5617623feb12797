"""From an HTTP request to its generated response: one JSON body, or a stream of events.

Owns what completions and chat have in common. Closing the engine's streams on every way out aborts the requests of a
client that disconnects.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from specserve.namespaces import add_salt
from specserve.server.errors import create_error_response
from specserve.server.json_response import json_response
from specserve.server.model_lookup import pinned_model
from specserve.server.output_streams import stream_outputs
from specserve.server.read_body import read_body
from specserve.server.request_bodies import SamplingBody
from specserve.server.sse import EventStream
from specserve.server.state import ready_engine, served_model_name, state_of
from specserve.server.usage import speculation_metrics, usage

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.json_types import JsonObject
    from specserve.server.choices import Choice, CompletionOutput
    from specserve.server.engine_client import EngineClient
    from specserve.server.prepared_request import PreparedRequest


B = TypeVar("B", bound=SamplingBody)
B_contra = TypeVar("B_contra", bound=SamplingBody, contravariant=True)


class PrepareRequest(Protocol[B_contra]):
    """From a body, the model's name and the namespace to a request; raises RequestError where the body is wrong."""

    def __call__(self, engine: EngineClient, body: B_contra, model: str, namespace: str, /) -> PreparedRequest: ...


async def serve_generation(
    request: web.Request, body_type: type[B], prepare_request: PrepareRequest[B]
) -> web.StreamResponse:
    """Read the body, pin its model, prepare the request in a thread (it tokenizes), generate and respond."""
    engine = ready_engine(request)
    body = await read_body(request, body_type)
    async with pinned_model(engine, body.model, served_model_name(request)) as model:
        namespace = add_salt(model.namespace, body.cache_salt)
        prepared = await asyncio.to_thread(prepare_request, engine, body, model.name, namespace)
        return await send_response(request, engine, prepared)


async def send_response(request: web.Request, engine: EngineClient, prepared: PreparedRequest) -> web.StreamResponse:
    groups, n = state_of(request).groups, prepared.body.num_choices
    if not prepared.body.stream:
        body = await full_response(engine, prepared)
        groups.count(prepared.choices, n)
        return json_response(body)
    events = EventStream(request)
    with suppress(ConnectionResetError):  # the client has disconnected: its requests are aborted by now
        async with events:
            await stream_response(events, engine, prepared)
    groups.count(prepared.choices, n)
    return events.response


async def full_response(engine: EngineClient, prepared: PreparedRequest) -> JsonObject:
    async with aclosing(stream_outputs(engine, prepared.choices)) as outputs:
        async for choice, output in outputs:
            choice.outputs.append(output)
    formatter, choices = prepared.formatter, prepared.choices
    return {
        **prepared.common_fields(formatter.object_type, int(time.time())),
        "choices": [formatter.full_choice(choice, choice.full_output()) for choice in choices],
        "usage": usage(choices, prepared.body.num_choices),
        **formatter.extra_fields(choices[0]),
        **speculation_metrics(choices),
    }


async def stream_response(events: EventStream, engine: EngineClient, prepared: PreparedRequest) -> None:
    """Chunks, then usage where requested. An error becomes an event; one that precedes the first event, such as a full
    queue, is raised and has a status of its own."""
    try:
        await send_chunks(events, engine, prepared)
    except ConnectionResetError:
        raise
    except Exception as error:  # the status 200 is sent already
        if not events.started:
            raise
        await events.send(create_error_response(error).body)


async def send_chunks(events: EventStream, engine: EngineClient, prepared: PreparedRequest) -> None:
    """One event per output that has something to show."""
    formatter, choices, n = prepared.formatter, prepared.choices, prepared.body.num_choices
    options = prepared.body.stream_options
    include_usage = options is not None and bool(options.include_usage)
    continuous_usage = include_usage and options is not None and bool(options.continuous_usage_stats)
    common = prepared.common_fields(formatter.chunk_object_type, int(time.time()))
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
        or output.finish_reason
        or output.logprobs
        or (output.token_ids and prepared.body.return_token_ids)
        or (first and choice.echo_text)
    )
