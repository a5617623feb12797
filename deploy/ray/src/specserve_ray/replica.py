"""The deployment whose replicas have an engine each."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from contextlib import AsyncExitStack, aclosing, nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace
from ray import serve

from specserve.announcements import announce
from specserve.errors import EngineDeadError
from specserve_ray.change_log import ChangeLog
from specserve_ray.changes_actor import find_changes
from specserve_ray.local_server import serve_locally
from specserve_ray.replica_stats import stats_of, to_table
from specserve_server.app.access_log import access_log_on_stderr
from specserve_server.engines.load import announcements, load_engine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from specserve_ray.change_log import MadeChange
    from specserve_ray.change_routes import Change
    from specserve_ray.config import Configuration
    from specserve_ray.wire import Answer, ForwardedRequest, Head
    from specserve_server.config import ServerConfig
    from specserve_server.engine_client import LoadedEngine

logger = logging.getLogger(__name__)


class Replica:
    """Ray makes it in a process of its own. It is healthy once its engine is loaded and it has the adapters and corpora
    that clients have loaded before."""

    async def __init__(self, configuration: Configuration) -> None:  # type: ignore[misc]  # Serve awaits it
        async def load() -> LoadedEngine:
            engine = await load_engine(configuration.replica_engine)
            for line in announcements(engine):
                announce(line)
            return engine

        server = configuration.server
        context = serve.get_replica_context()
        self.key, config = own_key(server)
        self.resources = AsyncExitStack()
        self.resources.enter_context(nullcontext() if server.access_log == "none" else access_log_on_stderr())
        self.local = await self.resources.enter_async_context(
            serve_locally(load, config, context.replica_id.unique_id, configuration.ray.chunk_interval)
        )
        self.changes = find_changes(context.app_name)
        self.log = ChangeLog()
        """Of the changes that this replica has made."""
        self.changing = asyncio.Lock()
        self.tentative: MadeChange | None = None
        """Made here, and perhaps undone if another replica refuses it."""
        self.report_numbers = itertools.count(1)
        await self.catch_up()

    async def stream(self, request: ForwardedRequest) -> AsyncGenerator[Head | bytes, None]:
        """The head, then the body as it comes. Closing it aborts the request."""
        await self.catch_up_to(request.changes)
        async with aclosing(self.local.send(request)) as parts:
            async for part in parts:
                yield part

    async def answer(self, request: ForwardedRequest) -> Answer:
        """For requests that go to every replica; none of them streams."""
        await self.catch_up_to(request.changes)
        return await self.local.answer(request)

    # --- adapters and corpora -----------------------------------------------------------------------

    async def change(self, request: ForwardedRequest, made: MadeChange) -> Answer:
        """`request` is the client's, with its key. The change counts once the log of all has it."""
        async with self.changing:
            await self.make_missing_changes()
            answer = await self.local.answer(request)
            self.tentative = made if 200 <= answer.head.status < 300 else None
            return answer

    async def undo(self, undoing: Change | None) -> bool:
        """Whether the replica is as it was before its last `change`."""
        async with self.changing:
            made, self.tentative = self.tentative, None
            return made is None or (undoing is not None and await self.make(undoing))

    async def catch_up_to(self, number: int) -> None:
        if number > self.log.number:
            await self.catch_up()

    async def catch_up(self) -> None:
        async with self.changing:
            await self.make_missing_changes()

    async def make_missing_changes(self) -> None:
        """Raises CannotCatchUpError."""
        logged = await self.changes.since.remote(self.log.number)
        if logged.number < self.log.number:
            await self.changes.restore.remote(self.log.since(0))
        for made in logged.made:
            if made != self.tentative and not await self.make(made.change):
                raise CannotCatchUpError(
                    f"replica {self.local.replica} cannot have {made.change.what} as the others do"
                )
            self.log.add(made)

    async def make(self, change: Change) -> bool:
        headers = () if self.key is None else (("Authorization", f"Bearer {self.key}"),)
        answer = await self.local.answer(replace(change.request, headers=change.request.headers + headers))
        is_made = change.is_made_by(answer.head.status)
        if not is_made:
            logger.error("%s: %d %s", change.what, answer.head.status, answer.body.decode(errors="replace"))
        return is_made

    # --- what Serve asks ----------------------------------------------------------------------------

    async def check_health(self) -> None:
        """Called at the start and then periodically; Serve replaces a replica that raises."""
        engine = self.local.state.engine
        if engine is None or engine.status == "dead":
            raise EngineDeadError("the engine has died")
        await self.catch_up()

    def record_routing_stats(self) -> dict[str, object]:
        return to_table(stats_of(self.local.state, next(self.report_numbers)))

    async def __del__(self) -> None:
        """Serve calls it once the replica has no request any more."""
        await self.resources.aclose()


class CannotCatchUpError(Exception):
    """The replica lacks an adapter or a corpus that the others have: it is to be replaced."""


def own_key(server: ServerConfig) -> tuple[str | None, ServerConfig]:
    """A key that only this process knows, to make changes again; None where no key is required."""
    if not server.api_keys and server.api_key_file is None:
        return None, server
    key = secrets.token_hex(32)
    return key, replace(server, api_key=(*server.api_keys, key))
