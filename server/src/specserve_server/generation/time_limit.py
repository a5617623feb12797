"""An engine whose requests end after a limited time, whichever route submits them, those of plugins too."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar, cast

from specserve_server.errors import TimeLimitError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from specserve.types import GenerateRequest, RequestOutput
    from specserve_server.engine_client import RunningEngine

E = TypeVar("E", bound="RunningEngine")


def time_limited(engine: E, seconds: float | None) -> E:
    """None: the engine as it is."""
    return engine if seconds is None else cast("E", TimeLimitedEngine(engine, seconds))


class TimeLimitedEngine:
    """All but `submit` is the engine's own."""

    def __init__(self, engine: RunningEngine, seconds: float) -> None:
        self._engine, self._seconds = engine, seconds
        self._closing: set[asyncio.Task[None]] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._engine, name)

    async def submit(self, request: GenerateRequest) -> AsyncGenerator[RequestOutput, None]:
        """Raises TimeLimitError once the time is over; by then the engine has aborted the request."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        async with aclosing(self._engine.submit(request)) as outputs:
            finished = False
            while not finished:
                output = await self._next(outputs, deadline)
                finished = output.finish_reason is not None
                # The caller may wait for a slow client while the engine goes on.
                late = loop.call_at(deadline, self._close, outputs)
                try:
                    yield output
                finally:
                    late.cancel()
                if not finished and loop.time() >= deadline:
                    raise self._error()

    async def _next(self, outputs: AsyncGenerator[RequestOutput, None], deadline: float) -> RequestOutput:
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await anext(outputs)
        except TimeoutError:
            if limit.expired():
                raise self._error() from None
            raise

    def _close(self, outputs: AsyncGenerator[RequestOutput, None]) -> None:
        task = asyncio.get_running_loop().create_task(outputs.aclose())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _error(self) -> TimeLimitError:
        return TimeLimitError(
            f"the request ran longer than {self._seconds:g} s, the limit of this server. Ask for fewer tokens."
        )
