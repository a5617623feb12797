"""Addresses that several processes listen on: the system gives each new connection to one of them."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.errors import ConfigError
from specserve_server.app.listening import reason
from specserve_server.http_process.frames import Address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.app.tls import Tls


def addresses_of(runner: web.AppRunner) -> tuple[Address, ...]:
    """Those of its TCP sockets."""
    return tuple(Address(*address) for address in runner.addresses if isinstance(address, tuple))


async def listen_beside(runner: web.AppRunner, addresses: Sequence[Address], tls: Tls | None) -> None:
    """Raises ConfigError."""
    for address in addresses:
        try:
            bound = bound_socket(address)
        except OSError as error:
            raise ConfigError(f"cannot listen on {address.host}:{address.port}, too: {reason(error)}.") from error
        await web.SockSite(runner, bound, ssl_context=None if tls is None else tls.context).start()


def bound_socket(address: Address) -> socket.socket:
    """As asyncio binds one for `reuse_port`."""
    is_v6 = ":" in address.host
    made = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if is_v6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((address.host, address.port, address.flow, address.scope))
        else:
            made.bind((address.host, address.port))
    except BaseException:
        made.close()
        raise
    return made
