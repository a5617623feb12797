"""The options of kv_events, and what an endpoint may be."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.api import ConfigError

ENDPOINT = re.compile(r"(?:tcp://[^/\s]+:(?:\d{1,5}|\*)|ipc://\S+)")
SocketKind = Literal["auto", "bind", "connect"]


class KvEventsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`--set kv_events.endpoint=tcp://*:5557`."""

    endpoint: str = "tcp://*:5557"
    """Where events are published: tcp://HOST:PORT, where the port * is a free one, or ipc://PATH."""
    socket: SocketKind = "auto"
    """Whether the endpoint is this server's (bind) or a subscriber's (connect). auto is vLLM's rule: connect where
    a tcp endpoint has neither * nor ::, else bind."""
    replay_endpoint: str | None = None
    """Where subscribers ask for batches that they missed, always this server's; None: nowhere."""
    topic: Annotated[str, Meta(max_length=1024)] = ""
    """The first frame of each message, by which subscribers choose: kv@POD@MODEL for llm-d."""
    encoding: Literal["map", "array"] = "map"
    """How an event is written: map as newer releases of vLLM do, array as older ones did."""
    buffer: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Batches that are kept for replay, and as many that may wait to be sent; the oldest is dropped."""
    hwm: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Messages that ZeroMQ keeps for a subscriber that does not read; what is beyond is lost to it."""

    def __post_init__(self) -> None:
        check_endpoint("endpoint", self.endpoint)
        if self.replay_endpoint is not None:
            check_endpoint("replay_endpoint", self.replay_endpoint)

    @property
    def binds(self) -> bool:
        if self.socket == "auto":
            return "*" in self.endpoint or "::" in self.endpoint or self.endpoint.startswith("ipc://")
        return self.socket == "bind"


def check_endpoint(name: str, endpoint: str) -> None:
    if not ENDPOINT.fullmatch(endpoint):
        raise ConfigError(
            f"{name}: {endpoint!r} is no endpoint. Write tcp://HOST:PORT, such as tcp://*:5557 for all addresses of "
            "this machine, or ipc://PATH."
        )
