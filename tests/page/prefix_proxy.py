"""A reverse proxy that serves another server under a prefix, which it removes: what nginx's `proxy_pass` does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import ClientSession, web

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "date", "server"}


def prefix_proxy(prefix: str, to: str) -> web.Application:
    """`to`: a URL that ends with a slash. Paths outside the prefix are 404."""
    app = web.Application()

    async def keep_session(app: web.Application) -> AsyncIterator[None]:
        async with ClientSession() as session:
            app[SESSION] = session
            yield

    async def pass_on(request: web.Request) -> web.StreamResponse:
        path = request.raw_path.removeprefix(f"{prefix}/")
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP | {"host"}}
        body = await request.read()
        async with app[SESSION].request(request.method, to + path, headers=headers, data=body) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
        return response

    app.cleanup_ctx.append(keep_session)
    app.router.add_route("*", f"{prefix}/{{path:.*}}", pass_on)
    return app


SESSION = web.AppKey("session", ClientSession)
