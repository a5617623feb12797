"""The routes of the page: / and /page/NAME for each of its files, and the headers that keep it to itself."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from aiohttp import web

from specserve_page.served_file import ServedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".json": "application/json",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""No script but these files, no request to another origin, no frame around the page. With trusted types, a browser
refuses to read any text as HTML."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def page_routes() -> list[web.RouteDef]:
    """The entry point. Paths are exact: no part of a request's path is looked up among files."""
    return [
        web.get("/" if file.name == INDEX else f"/page/{file.name}", serve_file(file).serve) for file in static_files()
    ]


def serve_file(file: Traversable) -> ServedFile:
    return ServedFile(file.read_bytes(), MEDIA_TYPES[f".{file.name.rpartition('.')[2]}"], HEADERS)


def static_files() -> Iterator[Traversable]:
    yield from sorted(files("specserve_page").joinpath("static").iterdir(), key=lambda file: file.name)
