"""What aiohttp refuses by itself, in words that say what to do: unknown routes, other methods, bodies too large."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.errors import RequestError
from specserve_server.app.root_path import without_prefix
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from collections.abc import Collection

MAX_PATH = 100
ALIKE = 0.75
"""From this similarity on (difflib's ratio), another path was meant."""
ELSEWHERE = {
    "/api/chat": "/v1/chat/completions",
    "/api/generate": "/v1/completions",
    "/api/tags": "/v1/models",
    "/generate": "/v1/completions",
    "/generate_stream": "/v1/completions",
    "/v1/complete": "/v1/messages",
    "/invocations": "/v1/chat/completions",
    "/healthz": "/health",
    "/livez": "/health",
    "/readyz": "/health",
}
"""What other servers call it."""


class HttpRefusal(RequestError):
    """One of aiohttp's own, with its status."""

    def __init__(self, message: str, status: int, code: str) -> None:
        super().__init__(message, code=code)
        self.status = status


def http_refusal(request: web.Request, error: web.HTTPException) -> HttpRefusal | None:
    """None for what a plugin's handler raised: its text is kept."""
    if error.text != f"{error.status}: {error.reason}" and error.status != 413:
        return None
    if isinstance(error, web.HTTPNotFound):
        return HttpRefusal(unknown_route(request), error.status, "route_not_found")
    if isinstance(error, web.HTTPMethodNotAllowed):
        methods = " or ".join(sorted(error.allowed_methods))
        text = f"{request.method} {shown_path(request)}: this route takes {methods}, not {error.method}."
        return HttpRefusal(text, error.status, "method_not_allowed")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        most = state_of(request).config.max_body_bytes
        text = (
            f"the body is too large: this server takes at most {most} bytes, counted without compression. Send less, "
            "or start it with more --max-body-bytes."
        )
        return HttpRefusal(text, error.status, "body_too_large")
    return None


def unknown_route(request: web.Request) -> str:
    state = state_of(request)
    paths = {resource.canonical for resource in request.app.router.resources()}
    if state.plugin_routes is not None:
        paths.update(state.plugin_routes.paths)
    meant = nearest(without_prefix(request.path, state.config.root_path), paths)
    advice = f"did you mean {meant}?" if meant else "this server generates text."
    return f"{request.method} {shown_path(request)}: there is no such route; {advice} /openapi.json lists all routes."


def shown_path(request: web.Request) -> str:
    """As the client wrote it."""
    path = request.rel_url.raw_path
    return path if len(path) <= MAX_PATH else path[: MAX_PATH - 1] + "…"


def nearest(path: str, paths: Collection[str]) -> str | None:
    """The same path without slips of letters and slashes, else the one that is spelled most alike."""
    words = [word for word in path[:MAX_PATH].lower().split("/") if word]
    plain = "/" + "/".join(words[1:] if words[:2] == ["v1", "v1"] else words)
    by_case = {known.lower(): known for known in paths}
    for written in (plain, "/v1" + plain, ELSEWHERE.get(plain, ""), plain.removeprefix("/v1")):
        if written in by_case:
            return by_case[written]
    fixed = sorted(known for known in paths if "{" not in known)
    return next(iter(get_close_matches(plain, fixed, n=1, cutoff=ALIKE)), None)
