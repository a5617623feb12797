"""Where the outputs of one request wait for their reader."""

from __future__ import annotations

import asyncio

from specserve.errors import SpecserveError
from specserve.types import RequestOutput


class Mailbox:
    """Holds at most one output: outputs that arrive before the reader takes them are merged.

    Until it is `open`, outputs of its request id belong to an earlier request that had the same id.
    """

    __slots__ = ("arrived", "content", "has_begun", "interval", "open")

    def __init__(self) -> None:
        self.content: RequestOutput | SpecserveError | None = None
        self.arrived = asyncio.Event()
        self.open = False
        self.interval = 1
        """See `EngineConfig.stream_interval`."""
        self.has_begun = False
        """Tokens have arrived before."""

    def put(self, content: RequestOutput | SpecserveError) -> bool:
        """Whether the reader is to take it now; it waits for more tokens otherwise."""
        if isinstance(self.content, RequestOutput):
            if self.content.finish_reason is not None:
                return True  # complete: a failure of the engine does not affect this reader any more
            if isinstance(content, RequestOutput):
                content = self.content.merge(content)
        self.content = content
        if not self.is_due(content):
            return False
        self.arrived.set()
        return True

    def is_due(self, content: RequestOutput | SpecserveError) -> bool:
        if isinstance(content, SpecserveError) or content.finish_reason is not None or not content.tokens:
            return True
        is_first, self.has_begun = not self.has_begun, True
        return is_first or len(content.tokens) >= self.interval

    async def take(self) -> RequestOutput:
        await self.arrived.wait()
        self.arrived.clear()
        content, self.content = self.content, None
        if isinstance(content, SpecserveError):
            raise content
        assert content is not None
        return content
