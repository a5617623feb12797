"""Runs an application so that failures below the routes, such as bytes that are not HTTP, are answered in JSON, too."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from typing import TYPE_CHECKING, cast

from aiohttp import web

from specserve_server.app import http_log
from specserve_server.errors import error_body
from specserve_server.wire.json_response import json_response

if TYPE_CHECKING:
    from logging import Logger

    from aiohttp.web_server import Server

SHUTDOWN_TIMEOUT = 5.0
"""Seconds that open connections may take to send what is already generated."""
LINGERING_TIME = 1.0
"""Seconds for which the rest of a refused body is still read, so that its client sees the response."""

CODING = re.compile(r"Can not decode content-encoding: \w+ \((?P<name>\w+)\)")
"""aiohttp's message where no decoder is installed."""


class Connection(web.RequestHandler):
    """One client's. aiohttp calls `handle_error` where no request reaches the routes, and where a response fails."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs it, and raises where a response has begun
        if status >= 500:
            body = error_body("internal error; the server's log has the details.", "server_error")
        else:
            body = error_body(explain_bad_request(message or ""), "invalid_request_error")
        response = json_response(body, status=status)
        response.force_close()
        return response


def explain_bad_request(message: str) -> str:
    """`message`: aiohttp's."""
    if coding := CODING.search(message):
        return (
            f"the body's Content-Encoding is {coding['name']}, which is not served; send gzip, deflate, or no encoding."
        )
    text = " ".join(message.encode(errors="replace").decode().split())
    return f"this is not valid HTTP: {text or 'the request cannot be read'}"


class HttpRunner(web.AppRunner):
    """`server` is what its sites call for each client that connects."""

    __slots__ = ()

    def __init__(self, app: web.Application) -> None:
        super().__init__(app, handler_cancellation=True, shutdown_timeout=SHUTDOWN_TIMEOUT)

    @property
    def server(self) -> Server | None:
        server = super().server
        if server is None:
            return None
        connect = partial(
            Connection,
            server,
            loop=asyncio.get_running_loop(),
            lingering_time=LINGERING_TIME,
            access_log=cast("Logger", None),  # the middlewares write it
            logger=http_log.logger,
        )
        return cast("Server", connect)
