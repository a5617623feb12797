"""What a step costs by its query rows: a table measured at start-up and refined online.

Never a straight line: tiles and graph buckets make stairs of it, so the points lie on both sides of them.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from typing import TYPE_CHECKING

from specserve.request import Request
from specserve.spans import Span
from specserve.types import GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch import Batch, BatchBuilder
    from specserve.runner import Runner

POINTS = (1, 4, 8, 16, 32, 33, 64, 65, 128, 256)
CONTEXT = 256
ADAPTATION = 0.05
ROUNDS = 4


class StepCosts:
    """seconds(rows) by linear interpolation between points, never falling."""

    def __init__(self, rows: list[int], seconds: list[float]) -> None:
        self.rows, self.table = rows, seconds
        self.make_monotone()

    def seconds(self, rows: int) -> float:
        at = bisect_left(self.rows, rows)
        if at == 0:
            return self.table[0]
        if at == len(self.rows):  # beyond the last point: as steep as the whole table
            return self.table[-1] * rows / self.rows[-1]
        (r0, r1), (s0, s1) = self.rows[at - 1 : at + 1], self.table[at - 1 : at + 1]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def observe(self, batch: Batch, seconds: float) -> None:
        """Move the next point up towards what a step without prefill took."""
        if any(span.known > 1 for span in batch.spans):
            return
        at = min(bisect_left(self.rows, batch.num_rows), len(self.rows) - 1)
        self.table[at] += ADAPTATION * (min(seconds, 2 * self.table[at]) - self.table[at])
        # what was just seen wins over what was once measured, on both sides of it
        self.table[:at] = [min(before, self.table[at]) for before in self.table[:at]]
        self.make_monotone()

    def make_monotone(self) -> None:
        for i in range(1, len(self.table)):
            self.table[i] = max(self.table[i], self.table[i - 1])


def measure_costs(
    runner: Runner, builder: BatchBuilder, *, num_blocks: int, most_rows: int, wait: Callable[[], None]
) -> StepCosts:
    """Time forward passes over an empty cache; `wait` blocks until the device is done. Run before serving."""
    room = min(num_blocks * builder.block_size, runner.model.max_model_len)
    context = max(1, min(CONTEXT, room // 2))
    points = [rows for rows in POINTS if rows <= min(most_rows, room - context)] or [1]
    request = Request.admit(
        GenerateRequest(request_id="cost", prompt_token_ids=(0,) * (context + points[-1])),
        seed=0,
        arrival=0.0,
        order=0,
        max_len=context + points[-1],
    )
    request.blocks = list(range(-(-len(request.tokens) // builder.block_size)))
    batches = [builder.build([Span(request, context, rows, 0, rows)]) for rows in points]
    table = [math.inf] * len(points)
    for _ in range(ROUNDS):  # in turn, so that a busy moment of the machine cannot spoil one point alone
        for at, batch in enumerate(batches):
            runner.forward(batch)  # as in steady decoding: the pass before had the same shape and left caches warm
            wait()
            began = time.perf_counter()
            runner.forward(batch)
            wait()
            table[at] = min(table[at], time.perf_counter() - began)
    return StepCosts(points, table)
