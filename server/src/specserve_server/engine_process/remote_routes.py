"""The routes of plugins in the engine's process: the server passes requests on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from specserve.errors import EngineDeadError
from specserve_server.engine_process.route_server import ROUTE_HEADER
from specserve_server.state.request_record import RECORD, REQUEST_ID
from specserve_server.wire.end_to_end_headers import end_to_end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_checks.json_types import JsonObject
    from specserve_server.engine_process.client import RemoteEngine

WRITTEN_ANEW = ("content-length", "expect")


class RemoteRoutes:
    """Implements `specserve_server.engine_client.PluginRoutes`."""

    def __init__(self, engine: RemoteEngine, socket_path: str, patterns: Sequence[str]) -> None:
        self.engine, self.paths = engine, patterns
        self.session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(socket_path, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Behind what the server sent before: requests that ended have released their adapters."""
        body = await request.read()
        await self.engine.sync()
        try:
            async with self.session.request(
                request.method,
                URL.build(scheme="http", host="engine", path=request.rel_url.raw_path, encoded=True).with_query(
                    request.rel_url.query
                ),
                headers=forwarded(request),
                data=body or None,
                allow_redirects=False,
            ) as answer:
                return await passed_on(request, answer)
        except aiohttp.ClientError as error:
            raise EngineDeadError(f"the engine's process did not answer this route: {error}") from error

    def document(self, *, root_path: str, needs_key: bool) -> JsonObject:
        return self.engine.document(root_path=root_path, needs_key=needs_key)

    async def close(self) -> None:
        await self.session.close()


def forwarded(request: web.BaseRequest) -> CIMultiDict[str]:
    """The body was decoded when it was read."""
    headers = CIMultiDict(end_to_end(request.headers.items(), (*WRITTEN_ANEW, "content-encoding")))
    headers[REQUEST_ID] = request[RECORD].id
    return headers


async def passed_on(request: web.BaseRequest, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    route = answer.headers.get(ROUTE_HEADER)
    if route is None and answer.status == web.HTTPNotFound.status_code:
        raise web.HTTPNotFound
    if route is None and answer.status == web.HTTPMethodNotAllowed.status_code:
        raise web.HTTPMethodNotAllowed(request.method, answer.headers.get(hdrs.ALLOW, "").split(","))
    request[RECORD].plugin_route = route
    headers = CIMultiDict(end_to_end(answer.headers.items(), (*WRITTEN_ANEW, ROUTE_HEADER.lower())))
    if answer.content_length is not None:
        return web.Response(body=await answer.read(), status=answer.status, reason=answer.reason, headers=headers)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response
