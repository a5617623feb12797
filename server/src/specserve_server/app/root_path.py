"""The prefix under which a proxy serves the server. Paths are served with it and without it, so that the proxy may
remove the prefix or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Sequence


def with_prefix(routes: Sequence[web.RouteDef], root_path: str) -> list[web.RouteDef]:
    if not root_path:
        return list(routes)
    return [*routes, *(web.route(one.method, root_path + one.path, one.handler, **one.kwargs) for one in routes)]


def without_prefix(path: str, root_path: str) -> str:
    return path.removeprefix(root_path) if path.startswith(root_path + "/") else path
