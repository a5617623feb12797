"""Further processes that listen on the server's address, as the first one has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from aiohttp import web

    from specserve_server.state.group_metrics import GroupMetrics
    from specserve_server.state.response_counts import ResponseCounts


class FurtherProcesses(Protocol):
    """Made when the engine is loaded."""

    async def start(self, runner: web.AppRunner, responses: ResponseCounts, groups: GroupMetrics) -> None:
        """On the addresses of `runner`; returns when all listen. What they answer is added to the counts. Raises
        SpecserveError where one of them cannot start."""
        ...

    def reload(self) -> None:
        """Have files of the configuration read again."""
        ...

    async def drain(self, seconds: float) -> float:
        """Let their requests finish for so long. Returns when they have ended, or after that time, how many seconds are
        left."""
        ...

    def tell_death(self, error: str) -> None:
        """The engine has died: `end` lets them answer so."""
        ...

    async def end(self) -> None:
        """Those that still run abort their requests and end, or are killed."""
        ...


class NoFurtherProcesses:
    """Implements `FurtherProcesses`."""

    async def start(self, runner: web.AppRunner, responses: ResponseCounts, groups: GroupMetrics) -> None:
        pass

    def reload(self) -> None:
        pass

    async def drain(self, seconds: float) -> float:
        return seconds

    def tell_death(self, error: str) -> None:
        pass

    async def end(self) -> None:
        pass


ONE_PROCESS = NoFurtherProcesses()
