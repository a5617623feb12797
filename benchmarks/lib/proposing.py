"""How long a drafter takes to propose, in steps of an engine that verifies none of its drafts."""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Any, cast

from benchmarks.lib.drafting_cost import CONTEXT, NothingVerified
from benchmarks.lib.workload import seeded

if TYPE_CHECKING:
    from specserve.engine.engine import Engine

STEPS, MOST_STEPS, NUM_TOKENS = 10, 200, 1000


class Proposing:
    """An engine with `count` greedy requests, which are replaced when they end."""

    def __init__(self, engine: Engine, count: int) -> None:
        self.engine, self.count, self.num_batches = engine, count, 0
        drafting = cast("Any", engine.drafting)
        engine.planner = engine.scheduler.planner = drafting.planner = NothingVerified(32)
        self.drafter: Any = drafting.guards[0].drafter
        self.samples: list[float] = []
        propose = self.drafter.propose

        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            drafts = propose(*arguments)
            if sum(draft is not None for draft in drafts) == count:
                self.samples.append(time.perf_counter() - began)
            return drafts

        self.drafter.propose = timed

    def seconds(self) -> float:
        """The median over some steps in which all requests were drafted for."""
        self.samples.clear()
        for _ in range(MOST_STEPS):
            if not self.engine.has_work:
                self.add_requests()
            self.engine.step()
            if len(self.samples) == STEPS:
                return median(self.samples)
        raise RuntimeError(f"{MOST_STEPS} steps, and only {len(self.samples)} drafted for all {self.count} requests.")

    def add_requests(self) -> None:
        self.num_batches += 1
        for i in range(self.count):
            prompt = tuple(range(i, CONTEXT + i))
            self.engine.add(seeded(f"{self.num_batches}.{i}", prompt, 0.0, i, NUM_TOKENS))
