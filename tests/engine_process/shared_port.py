"""Connections to a port that several processes listen on, each with the process that has it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from process_table import PATIENCE

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Iterator, Mapping

    from server_process import ServerProcess

ESTABLISHED = "01"
NO_HEADERS: Mapping[str, str] = {}


def inode_of(local: int, remote: int) -> str:
    """Of the socket of a connection, by its ports; "0" until a process has taken it."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        ports = tuple(int(fields[i].rpartition(":")[2], 16) for i in (1, 2))
        if ports == (local, remote) and fields[3] == ESTABLISHED:
            return fields[9]
    return "0"


def has_socket(pid: int, inode: str) -> bool:
    try:
        return any(str(link.readlink()) == f"socket:[{inode}]" for link in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:  # it was closed meanwhile
        return has_socket(pid, inode)


def owner_of(connection: socket.socket, pids: set[int]) -> int:
    """The process of the server that serves it; it has answered a request already."""
    _, port = connection.getpeername()[:2]
    inode = inode_of(port, connection.getsockname()[1])
    (pid,) = (pid for pid in pids if has_socket(pid, inode))
    return pid


@contextmanager
def one_connection_each(
    server: ServerProcess, tls: ssl.SSLContext | None = None, headers: Mapping[str, str] = NO_HEADERS
) -> Iterator[dict[int, HTTPConnection]]:
    """By process, the server's first one first. The system divides connections by a hash of their ports; each stays
    with its process until it is closed. `headers`: of the request that finds out."""
    pids, deadline = server.http_pids, time.monotonic() + PATIENCE
    found: dict[int, HTTPConnection] = {}
    try:
        while found.keys() != pids:
            assert time.monotonic() < deadline, f"only {sorted(found)} of {sorted(pids)} serve"
            connection = connected(server, tls, headers)
            owner = owner_of(connection.sock, pids)
            if owner in found:
                connection.close()
            else:
                found[owner] = connection
        yield {pid: found[pid] for pid in sorted(found, key=lambda pid: pid != server.process.pid)}
    finally:
        for connection in found.values():
            connection.close()


def connected(server: ServerProcess, tls: ssl.SSLContext | None, headers: Mapping[str, str]) -> HTTPConnection:
    """One that has an answer."""
    url = urlsplit(server.url)
    assert url.hostname is not None
    if tls is None:
        connection = HTTPConnection(url.hostname, url.port, timeout=PATIENCE)
    else:
        connection = HTTPSConnection(url.hostname, url.port, timeout=PATIENCE, context=tls)
    connection.request("GET", "/version", headers=headers)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()
    return connection
