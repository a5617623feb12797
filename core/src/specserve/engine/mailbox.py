"""Where the outputs of one request wait for their reader."""

from __future__ import annotations

import asyncio

from specserve.errors import SpecserveError
from specserve.types import RequestOutput


class Mailbox:
    """Holds at most one output: outputs that arrive before the reader takes them are merged.

    Until it is `open`, outputs of its request id belong to an earlier request that had the same id.
    """

    __slots__ = ("arrived", "content", "open")

    def __init__(self) -> None:
        self.content: RequestOutput | SpecserveError | None = None
        self.arrived = asyncio.Event()
        self.open = False

    def put(self, content: RequestOutput | SpecserveError) -> None:
        if isinstance(self.content, RequestOutput):
            if self.content.finish_reason is not None:
                return  # complete: a failure of the engine does not affect this reader any more
            if isinstance(content, RequestOutput):
                content = self.content.merge(content)
        self.content = content
        self.arrived.set()

    async def take(self) -> RequestOutput:
        await self.arrived.wait()
        self.arrived.clear()
        content, self.content = self.content, None
        if isinstance(content, SpecserveError):
            raise content
        assert content is not None
        return content
