"""Whether the server could listen at its address."""

from __future__ import annotations

import errno
import os
import socket
from typing import TYPE_CHECKING

from specserve_workbench.doctor.rows import Row, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve_workbench.doctor.case import Case


def port_rows(case: Case) -> list[Row]:
    return rows_of(case, address)


def address(case: Case) -> Iterator[Row]:
    host, port = case.server.host, case.server.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        yield Row("address", "failed", f"{host} is no address of this machine: {error}", "pass another --host")
        return
    for family, kind, protocol, _, place in found:
        refused = why_not(family, kind, protocol, place)
        if refused is not None and refused.errno == errno.EADDRINUSE:
            yield Row("address", "warning", f"{host}:{port} is in use", "end what listens there, or pass --port 0")
            return
        if refused is not None:
            reason = os.strerror(refused.errno) if refused.errno else str(refused)
            yield Row("address", "failed", f"{host}:{port}: {reason}", "pass another --host or --port")
            return
    yield Row("address", "ok", f"{host}, any free port" if port == 0 else f"{host}:{port} is free")


def why_not(family: int, kind: int, protocol: int, place: tuple[object, ...]) -> OSError | None:
    """The error of listening there, as the server would; None where there is none."""
    try:
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind(place)
    except OSError as error:
        return error
    return None
