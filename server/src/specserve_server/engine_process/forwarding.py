"""Requests that another process of this server answers: passed on over HTTP, on a unix socket.

Streams stay streams. Who leaves ends the connection, so that the other process notices.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
from aiohttp import hdrs, web
from multidict import CIMultiDict
from yarl import URL

from specserve_server.state.request_record import RECORD, REQUEST_ID
from specserve_server.wire.end_to_end_headers import end_to_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

WRITTEN_ANEW = ("content-length", "expect")
NO_HEADERS: Mapping[str, str] = {}


class Forwarding:
    """To the process that serves at `socket_path`. Made within the event loop."""

    def __init__(self, socket_path: str) -> None:
        self.session = aiohttp.ClientSession(
            connector=aiohttp.UnixConnector(socket_path, limit=0),
            timeout=aiohttp.ClientTimeout(total=None),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    @asynccontextmanager
    async def answer_to(
        self, request: web.BaseRequest, body: bytes, headers: Mapping[str, str] = NO_HEADERS
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """`body`: the request's, as it was read. `headers` are added. Raises aiohttp.ClientError."""
        url = URL.build(scheme="http", host="specserve", path=request.rel_url.raw_path, encoded=True)
        sent = forwarded(request)
        sent.update(headers)
        async with self.session.request(
            request.method,
            url.with_query(request.rel_url.query),
            headers=sent,
            data=body or None,
            allow_redirects=False,
        ) as answer:
            yield answer

    async def close(self) -> None:
        await self.session.close()


def forwarded(request: web.BaseRequest) -> CIMultiDict[str]:
    """The body was decoded when it was read."""
    headers = CIMultiDict(end_to_end(request.headers.items(), (*WRITTEN_ANEW, "content-encoding")))
    headers[REQUEST_ID] = request[RECORD].id
    return headers


async def passed_on(request: web.BaseRequest, answer: aiohttp.ClientResponse, *hidden: str) -> web.StreamResponse:
    """`hidden`: headers that are not for the client, in lower case."""
    headers = CIMultiDict(end_to_end(answer.headers.items(), (*WRITTEN_ANEW, *hidden)))
    if request.method == hdrs.METH_HEAD and hdrs.CONTENT_LENGTH in answer.headers:
        headers[hdrs.CONTENT_LENGTH] = answer.headers[hdrs.CONTENT_LENGTH]
    if answer.content_length is not None:
        return web.Response(body=await answer.read(), status=answer.status, reason=answer.reason, headers=headers)
    response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=headers)
    await response.prepare(request)
    async for chunk in answer.content.iter_any():
        await response.write(chunk)
    await response.write_eof()
    return response
