"""A replica's own server: specserve's HTTP application, unchanged, on a unix socket that only this process calls.

So every route, stream and error is what one server answers, no port is taken, and closing a connection aborts its
request as it does there.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import aiohttp
from msgspec.structs import replace
from yarl import URL

from specserve_ray.wire import Answer, Head
from specserve_server.app.application import make_app
from specserve_server.app.http_runner import HttpRunner
from specserve_server.app.listening import listening
from specserve_server.state.server_state import STATE
from specserve_server.wire.end_to_end_headers import end_to_end

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from specserve_ray.wire import ForwardedRequest
    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import LoadedEngine
    from specserve_server.state.server_state import ServerState

AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
"""What aiohttp would add, and the client did not send."""
ANY_HOST = "http://replica"
"""The host of URLs; nobody resolves it."""


class LocalServer(NamedTuple):
    """Made by `serve_locally`."""

    session: aiohttp.ClientSession
    state: ServerState
    replica: str
    chunk_interval: float
    """Seconds between two parts of a body: what comes in between is one part."""

    async def send(self, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
        """The head, then the body as it comes. Closing the generator closes the connection: that aborts the request."""
        url = URL(ANY_HOST + request.path, encoded=True)
        sent = end_to_end(request.headers, without=("host", "content-length"))
        async with self.session.request(
            request.method, url, headers=sent, data=request.body or None, allow_redirects=False
        ) as response:
            yield Head(response.status, end_to_end(response.headers.items()), self.replica)
            async for chunk in response.content.iter_any():
                yield chunk
                if self.chunk_interval:
                    await asyncio.sleep(self.chunk_interval)  # the reader keeps what comes

    async def answer(self, request: ForwardedRequest) -> Answer:
        head, body = None, []
        async for part in self.send(request):
            if isinstance(part, Head):
                head = part
            else:
                body.append(part)
        assert head is not None
        return Answer(head, b"".join(body))


@asynccontextmanager
async def serve_locally(
    start: Callable[[], Awaitable[LoadedEngine]], config: ServerConfig, replica: str, chunk_interval: float
) -> AsyncIterator[LocalServer]:
    """Ready when it yields. Raises what stops the engine from loading."""
    app = make_app(await start(), config)
    runner = HttpRunner(app)
    with tempfile.TemporaryDirectory(prefix="specserve-") as folder:
        path = str(Path(folder) / "http")
        try:
            await runner.setup()
            async with listening(runner, replace(config, uds=path), None):
                connector = aiohttp.UnixConnector(path, limit=0)
                timeout = aiohttp.ClientTimeout(total=None)
                async with aiohttp.ClientSession(
                    connector=connector, timeout=timeout, auto_decompress=False, skip_auto_headers=AUTOMATIC
                ) as session:
                    yield LocalServer(session, app[STATE], replica, chunk_interval)
        finally:
            await runner.cleanup()
