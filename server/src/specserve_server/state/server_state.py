"""The live state of one server application: its engine, and whether it accepts requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from secrets import token_hex
from typing import TYPE_CHECKING

from aiohttp import web

from specserve.errors import EngineDeadError
from specserve_server.errors import UnavailableError
from specserve_server.load_progress import LoadProgress
from specserve_server.page import NO_PAGE, Page
from specserve_server.state.further_processes import ONE_PROCESS
from specserve_server.state.group_metrics import GroupMetrics
from specserve_server.state.response_counts import ResponseCounts

if TYPE_CHECKING:
    import asyncio

    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import EngineClient, PluginRoutes, Status
    from specserve_server.state.api_keys import ApiKeys
    from specserve_server.state.further_processes import FurtherProcesses
    from specserve_server.state.rate_limits import RateLimits


@dataclass(slots=True, eq=False)
class ServerState:
    """`loading` is the task that loads the engine; `engine` is None until it has, and where it failed."""

    config: ServerConfig
    keys: ApiKeys
    limits: RateLimits
    page: Page = NO_PAGE
    engine: EngineClient | None = None
    loading: asyncio.Task[None] | None = None
    plugin_routes: PluginRoutes | None = None
    """None until the engine is loaded."""
    processes: FurtherProcesses = ONE_PROCESS
    fingerprint: str = ""
    """Of the loaded engine."""
    progress: LoadProgress = field(default_factory=LoadProgress)
    """Of the loading."""
    leaving: bool = False
    """Load balancers are to send requests elsewhere; those that come are served until `draining`."""
    draining: bool = False
    groups: GroupMetrics = field(default_factory=GroupMetrics)
    responses: ResponseCounts = field(default_factory=ResponseCounts)
    instance_id: str = field(default_factory=lambda: token_hex(8))
    """Of this server, for routers."""
    num_answering: int = 0
    """HTTP requests that have come and are not answered yet."""

    @property
    def status(self) -> Status:
        if self.engine is not None:
            return "draining" if self.draining and self.engine.status == "ready" else self.engine.status
        if self.draining:
            return "draining"
        return "dead" if self.loading is not None and self.loading.done() else "loading"

    @property
    def health(self) -> Status:
        """As `status`, for those who ask whether to send requests here."""
        return "draining" if self.leaving and self.status == "ready" else self.status


STATE = web.AppKey("specserve_state", ServerState)


def state_of(request: web.Request) -> ServerState:
    return request.app[STATE]


def ready_engine(request: web.Request) -> EngineClient:
    """The engine, if it accepts requests now."""
    state = state_of(request)
    engine = loaded_engine(request)
    if state.status == "dead":
        raise EngineDeadError("the engine has died; the server's log says why.")
    if state.status != "ready":
        raise UnavailableError(f"the server is {state.status}.")
    return engine


def loaded_engine(request: web.Request) -> EngineClient:
    """The engine, if it is loaded; it may be draining or dead."""
    state = state_of(request)
    if state.engine is None:
        raise UnavailableError(f"the server is {state.status}.")
    return state.engine


def served_model_names(request: web.Request) -> tuple[str, ...]:
    """The names by which clients know the base model; the first is the one for metrics and for what has no name."""
    return state_of(request).config.served_model_names or (loaded_engine(request).model_name,)
