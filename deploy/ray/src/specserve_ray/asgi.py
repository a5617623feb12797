"""The ASGI side of the ingress: from a scope and its body to a request, and from an answer to messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from specserve_ray.wire import ForwardedRequest, Head
from specserve_server.app.root_path import without_prefix
from specserve_server.wire.end_to_end_headers import end_to_end

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]  # of ASGI
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]
    AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]

ENCODING = "latin-1"
"""Of headers in ASGI."""


OF_RAY = ("date", "server", "x-request-id")
"""Headers that Ray's proxy sets on every answer; the request's id is its own then, or the client's."""
REPLICA = "X-Specserve-Replica"
"""The header that says which replica answers, or one of those that do."""


class ClientLeftError(Exception):
    """Before its request was whole."""


def path_of(scope: Scope) -> str:
    """As it was sent, without the query."""
    path: str = scope.get("raw_path", b"").decode("ascii") or quote(scope["path"])
    return path.partition("?")[0]


def lacks_slash(scope: Scope, root_path: str) -> bool:
    """Whether the path is a prefix and nothing more: Ray's route prefix, or that of a proxy before it."""
    return path_of(scope) in {scope.get("root_path", ""), root_path} - {""}


async def read_request(scope: Scope, receive: Receive, root_path: str, max_body_bytes: int) -> ForwardedRequest:
    """Its path without both prefixes. Of a body that is too long one byte more than is allowed, so that a replica
    refuses it in its own words. Raises ClientLeftError."""
    headers = [(name.decode(ENCODING), value.decode(ENCODING)) for name, value in scope["headers"]]
    path = without_prefix(without_prefix(path_of(scope), scope.get("root_path", "")), root_path)
    query = scope.get("query_string", b"").decode("ascii")
    body = await read_body(receive, max_body_bytes + 1)
    kept = end_to_end(headers, without=("content-length", "expect"))
    return ForwardedRequest(scope["method"], f"{path}?{query}" if query else path, kept, body)


async def read_body(receive: Receive, most: int) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size >= most or not message.get("more_body", False):
            return b"".join(parts)[:most]


async def send_answer(send: Send, parts: AsyncIterator[Head | bytes]) -> None:
    async for part in parts:
        if isinstance(part, Head):
            kept = end_to_end(part.headers, OF_RAY) + (((REPLICA, part.replica),) if part.replica else ())
            headers = [(name.lower().encode(ENCODING), value.encode(ENCODING)) for name, value in kept]
            await send({"type": "http.response.start", "status": part.status, "headers": headers})
        else:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def add_slash(scope: Scope, send: Send) -> None:
    """Addresses in the page are relative to a path that ends with one."""
    headers = [(b"location", f"{path_of(scope)}/".encode("ascii")), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 308, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def run_lifespan(receive: Receive, send: Send) -> None:
    """Nothing is to be started or stopped."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
