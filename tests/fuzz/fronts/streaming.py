"""The asyncio front: each request has a reader, some readers are slow, some go away in the middle."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from fuzz.failures import Failure
from fuzz.wire import as_request
from specserve.engine.async_engine import AsyncEngine

if TYPE_CHECKING:
    from fuzz.building import Built
    from fuzz.fronts.served import Served
    from fuzz.live_adapters import Lease, LiveAdapters
    from fuzz.plans import Plan, RequestPlan

TICK_SECONDS = 0.0005
LIMIT_SECONDS = 100


class Streaming:
    def __init__(self, plan: Plan, built: Built, adapters: LiveAdapters, served: Served) -> None:
        self.requests, self.built, self.adapters, self.served = plan.requests or (), built, adapters, served
        self.rng = random.Random(plan.engine.seed)

    def run(self) -> None:
        asyncio.run(self.serve())

    async def serve(self) -> None:
        self.front = AsyncEngine(self.built.assembled, self.built.host)
        try:
            readers = (self.reader(request) for request in self.requests)
            await asyncio.wait_for(asyncio.gather(self.change_adapters(), *readers), LIMIT_SECONDS)
            await asyncio.sleep(0.02)  # the last aborts
        finally:
            await self.front.stop()
        if self.front.status == "dead":
            raise Failure("step thread died", repr(self.front.death.result()))
        if self.front.mailboxes or (self.front.aborting and self.front.engine.requests):
            raise Failure("mailboxes or aborts are left", f"{[*self.front.mailboxes]}, {self.front.aborting}")

    async def change_adapters(self) -> None:
        clock = 0
        while self.adapters.due:
            self.adapters.advance(clock)
            clock += 1
            await asyncio.sleep(TICK_SECONDS)

    async def reader(self, request: RequestPlan) -> None:
        await asyncio.sleep(request.arrives * TICK_SECONDS)
        aborted = await self.read(request, request.aborted_after)
        if aborted and request.again:  # at once, under the same id
            self.served.counts["again"] += 1
            await self.read(request, None)

    async def lease(self, request: RequestPlan) -> Lease:
        while (lease := self.adapters.lease(request)) is None:
            await asyncio.sleep(0.002)
        return lease

    async def read(self, request: RequestPlan, most_outputs: int | None) -> bool:
        """True where the reader went away before the end."""
        lease = await self.lease(request)
        result = self.served.begin(request, lease.version)
        stream = self.front.submit(as_request(request, lease.adapter))
        async for output in stream:
            result.take(output)
            if most_outputs is not None and result.num_outputs > most_outputs and result.finish_reason is None:
                result.aborted = True
                self.served.counts["aborted"] += 1
                break
            if self.rng.random() < 0.2:
                self.served.counts["slow reader"] += 1
                await asyncio.sleep(0.001)  # outputs merge meanwhile
        await stream.aclose()
        self.front.after_aborts(lease.end)
        return result.aborted
