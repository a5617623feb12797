"""What a started engine brings to the server: a client for the routes, the routes of its plugins, and further processes
that serve it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve_server.state.further_processes import ONE_PROCESS

if TYPE_CHECKING:
    from specserve_server.engine_client import EngineClient, PluginRoutes
    from specserve_server.state.further_processes import FurtherProcesses


class AttachedEngine(NamedTuple):
    client: EngineClient
    routes: PluginRoutes
    processes: FurtherProcesses = ONE_PROCESS
