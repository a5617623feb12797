"""Routes whose answers a server has once: a further process passes their requests on to the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp
from aiohttp import web

from specserve_server.engine_process.forwarding import passed_on
from specserve_server.errors import UnavailableError
from specserve_server.state.request_record import CLIENT, RECORD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.engine_process.forwarding import Forwarding

PASSED_ON = frozenset(
    ("/health", "/ping", "/load", "/metrics", "/get_server_info", "/v1/responses", "/v1/responses/{id}")
)
"""Health, counts, the identity of the server, and stored responses."""


def with_passed_on(routes: Sequence[web.RouteDef], first: Forwarding) -> list[web.RouteDef]:
    """`first`: to the first process."""

    async def pass_on(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        request[RECORD].is_passed_on = True
        try:
            async with first.answer_to(request, body, {CLIENT: request.remote or "unix"}) as answer:
                return await passed_on(request, answer)
        except ConnectionResetError:
            raise  # the client has left
        except aiohttp.ClientError as error:
            raise UnavailableError(f"the first process of the server did not answer: {error}") from error

    def routed(route: web.RouteDef) -> web.RouteDef:
        is_passed_on = route.path in PASSED_ON
        return web.route(route.method, route.path, pass_on, **route.kwargs) if is_passed_on else route

    return [routed(route) for route in routes]
