"""Where the server listens: TCP, with TLS or without, or a unix socket."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.errors import ConfigError
from specserve_server.app.unix_socket import unix_socket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve_server.app.tls import Tls
    from specserve_server.config import ServerConfig


def reason(error: OSError) -> str:
    """asyncio replaces the system's words by a sentence with Python's."""
    if isinstance(error, socket.gaierror):
        return "the host is unknown, or has no address on this machine"
    return os.strerror(error.errno).lower() if error.errno else str(error)


@asynccontextmanager
async def listening(runner: web.AppRunner, config: ServerConfig, tls: Tls | None) -> AsyncIterator[str]:
    """Yields the address for clients: a URL with the port that the system has chosen for port 0, or `unix:PATH`. The
    runner closes the connections. Raises ConfigError."""
    if config.uds is not None:
        with unix_socket(config.uds, config.socket_mode) as bound:
            await web.SockSite(runner, bound).start()
            yield f"unix:{config.uds}{config.root_path}"
        return
    ssl_context, is_shared = None if tls is None else tls.context, config.http_processes > 1
    if is_shared and sys.platform != "linux":
        raise ConfigError(
            "http_processes above 1 needs Linux, which divides connections among them; got "
            f"{config.http_processes} on {sys.platform}. Leave it at 1."
        )
    try:
        if is_shared:
            await check_free(config)
        site = web.TCPSite(runner, config.host, config.port, ssl_context=ssl_context, reuse_port=is_shared or None)
        await site.start()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.host}:{config.port}: {reason(error)}. Choose another --host or --port."
        ) from error
    scheme = "http" if tls is None else "https"
    host = f"[{config.host}]" if ":" in config.host else config.host
    yield f"{scheme}://{host}:{runner.addresses[0][1]}{config.root_path}"


async def check_free(config: ServerConfig) -> None:
    """Raises OSError where another server listens there: one that shares its port, too, would be joined unnoticed."""
    loop = asyncio.get_running_loop()
    probe = await loop.create_server(asyncio.Protocol, config.host, config.port, start_serving=False)
    probe.close()
