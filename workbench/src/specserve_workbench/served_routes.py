"""An engine with the routes of its plugins, which need the distribution `specserve`: without it, the engine alone."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from specserve.engine.async_engine import AsyncEngine


def is_server_installed() -> bool:
    return find_spec("specserve_server") is not None


@asynccontextmanager
async def served_routes(engine: AsyncEngine) -> AsyncIterator[None]:
    """Plugins add their routes, and nothing listens. The engine is stopped at the end."""
    if not is_server_installed():
        try:
            yield
        finally:
            await engine.stop()
        return
    from aiohttp import web

    from specserve_server.app.application import make_app
    from specserve_server.config import ServerConfig

    runner = web.AppRunner(make_app(engine, ServerConfig()))
    try:
        await runner.setup()
        yield
    finally:
        await runner.cleanup()
