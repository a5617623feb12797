"""The ZeroMQ sockets of a publisher: opened at start-up, where a wrong endpoint is a ConfigError."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import zmq

from specserve.api import ConfigError

if TYPE_CHECKING:
    from specserve_kv_events.options import KvEventsOptions

LINGER = 500
"""Milliseconds in which what was sent last may still leave, after the end."""


class Sockets(NamedTuple):
    context: zmq.Context[zmq.Socket[bytes]]
    events: zmq.Socket[bytes]
    """PUB: never blocks, and drops what a slow subscriber has no room for."""
    replay: zmq.Socket[bytes] | None
    """ROUTER."""
    endpoint: str
    """The endpoint of `events`, with the port that was picked for *."""
    replay_endpoint: str | None

    def close(self) -> None:
        self.events.close(linger=LINGER)
        if self.replay is not None:
            self.replay.close(linger=0)
        self.context.term()


def open_sockets(options: KvEventsOptions) -> Sockets:
    """Raises ConfigError where an endpoint is in use or no address of this machine."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        events = context.socket(zmq.PUB)
        events.set_hwm(options.hwm)
        endpoint = options.endpoint
        if options.binds:
            endpoint = bind(events, "endpoint", endpoint)
        else:
            connect(events, endpoint)
        replay, replay_endpoint = None, None
        if options.replay_endpoint is not None:
            replay = context.socket(zmq.ROUTER)
            replay.set_hwm(options.buffer + 1)
            replay_endpoint = bind(replay, "replay_endpoint", options.replay_endpoint)
    except ConfigError:
        context.destroy(linger=0)
        raise
    return Sockets(context, events, replay, endpoint, replay_endpoint)


def bind(socket: zmq.Socket[bytes], option: str, endpoint: str) -> str:
    """The endpoint that was bound."""
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise ConfigError(
            f"kv_events.{option}: {endpoint} cannot be bound: {zmq.strerror(error.errno or 0).lower()}. Choose another "
            f"port, or end what uses this one."
        ) from None
    return str(socket.getsockopt_string(zmq.LAST_ENDPOINT)).replace("tcp://0.0.0.0:", "tcp://*:")


def connect(socket: zmq.Socket[bytes], endpoint: str) -> None:
    try:
        socket.connect(endpoint)
    except zmq.ZMQError as error:
        raise ConfigError(
            f"kv_events.endpoint: {endpoint} cannot be connected to: {zmq.strerror(error.errno or 0).lower()}. Correct "
            f"the host, or write tcp://*:PORT to publish there."
        ) from None
