"""What the first process and a further one send each other, on the socket between them."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from specserve_server.config import ServerConfig
from specserve_server.engine_process.frames import Frame
from specserve_server.engine_process.sent_state import SentHistogram


class Address(msgspec.Struct, frozen=True, array_like=True):
    """That a socket is bound to. `flow` and `scope`: of IPv6."""

    host: str
    port: int
    flow: int = 0
    scope: int = 0


# --- from the first process ---------------------------------------------------------------------------


class Serve(Frame, frozen=True, tag=True, array_like=True):
    """The first frame. `directory`: of the engine's sockets. `search_path`: where modules are looked for;
    `trace_topics`, `trace_form`: of --trace."""

    server: ServerConfig
    addresses: tuple[Address, ...]
    directory: str
    search_path: tuple[str, ...]
    trace_topics: tuple[str, ...]
    trace_form: str


class Reload(Frame, frozen=True, tag=True, array_like=True):
    """Read files of the configuration again."""


class EngineDied(Frame, frozen=True, tag=True, array_like=True):
    """Why, as the first process tells its clients."""

    error: str


class Drain(Frame, frozen=True, tag=True, array_like=True):
    """Refuse new requests, let others finish for so many seconds, and end."""

    seconds: float


class Abort(Frame, frozen=True, tag=True, array_like=True):
    """End without waiting for requests."""


FromFirst: TypeAlias = Serve | Reload | EngineDied | Drain | Abort


# --- from a further process ---------------------------------------------------------------------------


class Ready(Frame, frozen=True, tag=True, array_like=True):
    """It listens."""


class Counted(Frame, frozen=True, tag=True, array_like=True):
    """Since the last one. `answers`: how many by method, route and status. `n`, `longest`: of
    `specserve_server.state.group_metrics.GroupMetrics`."""

    answers: list[tuple[tuple[str, str, str], int]]
    n: SentHistogram
    longest: SentHistogram


FromFurther: TypeAlias = Ready | Counted
