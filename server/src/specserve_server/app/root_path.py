"""The prefix under which a proxy serves the server. Paths are served with it and without it, so that the proxy may
remove the prefix or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Never


def with_prefix(routes: Sequence[web.RouteDef], root_path: str) -> list[web.RouteDef]:
    """The prefix alone leads to the page, where there is one."""
    if not root_path:
        return list(routes)
    prefixed = [web.route(one.method, root_path + one.path, one.handler, **one.kwargs) for one in routes]
    alone = [web.get(root_path, to_page)] if any(one.path == "/" for one in routes) else []
    return [*routes, *prefixed, *alone]


async def to_page(request: web.Request) -> Never:
    """With a slash at the end: addresses in the page are relative to it."""
    raise web.HTTPPermanentRedirect(f"{request.rel_url.raw_path}/")


def without_prefix(path: str, root_path: str) -> str:
    if root_path and path == root_path:
        return "/"
    return path.removeprefix(root_path) if path.startswith(root_path + "/") else path
