"""The routes of the plugins of an engine in this process: an application of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from specserve_checks.struct_tables import build_struct_tables
from specserve_server.openapi.core_operations import CORE_OPERATIONS
from specserve_server.openapi.document import openapi_document
from specserve_server.openapi.plugin_operations import plugin_operations
from specserve_server.state.request_record import RECORD, add_headers
from specserve_server.state.response_counts import pattern_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from aiohttp.typedefs import Handler

    from specserve_checks.json_types import JsonObject
    from specserve_server.engine_client import ServedEngine


class PluginApplication:
    """Made by `start`. Implements `specserve_server.engine_client.PluginRoutes`."""

    def __init__(self, app: web.Application, runner: web.AppRunner) -> None:
        assert runner.server is not None, "it was set up"
        self.runner, self.server = runner, runner.server
        self.operations = plugin_operations(app)

    @classmethod
    async def start(cls, engine: ServedEngine) -> PluginApplication:
        app = web.Application(middlewares=[note_plugin_route])
        app.on_response_prepare.append(add_headers)  # of streams that a plugin's handler begins
        for _ in engine.plugins.collect("add_routes", app=app, engine=engine):
            pass
        build_struct_tables()  # of the bodies of plugins' routes
        runner = web.AppRunner(app)
        await runner.setup()
        return cls(app, runner)

    @property
    def paths(self) -> Collection[str]:
        return self.operations.keys()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self.server.request_handler(request)

    def document(self, *, root_path: str, needs_key: bool) -> JsonObject:
        """Where paths of plugins are the same as the server's own, these are served."""
        return openapi_document({**self.operations, **CORE_OPERATIONS}, root_path=root_path, needs_key=needs_key)

    async def close(self) -> None:
        await self.runner.cleanup()


@web.middleware
async def note_plugin_route(request: web.Request, handler: Handler) -> web.StreamResponse:
    """For the counts of answers."""
    request[RECORD].plugin_route = pattern_of(request)
    return await handler(request)
