"""GET /kv_event_sources: where a router finds this server's events. The form is that which vLLM's router asks for: it
puts the server's host in place of *, and reads sources of schema version 1 in msgpack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from aiohttp import web

from specserve_kv_events.wire import RANK
from specserve_server.operation import Answer, Operation, describe

if TYPE_CHECKING:
    from specserve_kv_events.options import KvEventsOptions
    from specserve_kv_events.sockets import Sockets


class EventSource(msgspec.Struct):
    """`buffer_steps`: batches that are kept for replay. `hwm`: messages that are kept for a subscriber."""

    endpoint: str
    replay_endpoint: str | None
    topic: str
    hwm: int
    buffer_steps: int
    publisher: Literal["zmq"]
    encoding: Literal["msgpack"]
    schema_version: Literal[1]
    enable_kv_cache_events: bool


def source_of(sockets: Sockets, options: KvEventsOptions) -> EventSource:
    return EventSource(
        endpoint=sockets.endpoint,
        replay_endpoint=sockets.replay_endpoint,
        topic=options.topic,
        hwm=options.hwm,
        buffer_steps=options.buffer,
        publisher="zmq",
        encoding="msgpack",
        schema_version=1,
        enable_kv_cache_events=True,
    )


class SourceRoute:
    """A server that connects to its subscriber has no endpoint to tell."""

    def __init__(self, sockets: Sockets, options: KvEventsOptions) -> None:
        self.body = msgspec.json.encode({str(RANK): source_of(sockets, options)} if options.binds else {})

    def add_to(self, app: web.Application) -> None:
        app.router.add_get("/kv_event_sources", self.sources)

    @describe(
        Operation(
            summary="Where the server publishes its KV events, by data parallel rank",
            tag="kv events",
            answers=(Answer(content={"application/json": dict[str, EventSource]}),),
        )
    )
    async def sources(self, request: web.Request) -> web.Response:
        return web.Response(body=self.body, content_type="application/json")
