"""What a started engine brings to the server: a client for the routes, and the routes of its plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from specserve_server.engine_client import EngineClient, PluginRoutes


class AttachedEngine(NamedTuple):
    client: EngineClient
    routes: PluginRoutes
