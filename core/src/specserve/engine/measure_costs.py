"""Times forward passes at start-up: the table of step costs that the planner begins with."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.kv.slots import num_blocks_for
from specserve.speculation.costs import StepCosts
from specserve.types import GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch
    from specserve.batch.builder import BatchBuilder
    from specserve.engine.runner import Runner

POINTS = (1, 4, 8, 16, 32, 33, 64, 65, 128, 256)
"""Query rows. Tiles and graph buckets make the cost a staircase, so points lie on both sides of its edges."""
CONTEXT = 256
ROUNDS = 4
FEW_ROWS, ROUNDS_OF_FEW_ROWS = 16, 12
"""Passes of few rows are short, and small differences between them decide whether a draft token pays."""


def measure_costs(
    runner: Runner, builder: BatchBuilder, *, num_blocks: int, most_rows: int, wait: Callable[[], None]
) -> StepCosts:
    """Time forward passes over an empty cache; `wait` blocks until the device is done. Run before serving."""
    cache_tokens = min(num_blocks * builder.block_size, runner.model.max_model_len)
    context = max(1, min(CONTEXT, cache_tokens // 2))
    points = [rows for rows in POINTS if rows <= min(most_rows, cache_tokens - context)] or [1]
    return StepCosts(points, best_times(runner, probe_batches(builder, context, points), wait))


def probe_batches(builder: BatchBuilder, context: int, points: list[int]) -> list[Batch]:
    """One request with `context` prompt tokens, and a batch of its next rows for each point."""
    request = Request.admit(
        GenerateRequest(request_id="cost", prompt_token_ids=(0,) * context),
        seed=0,
        arrival=0.0,
        order=0,
        max_len=context + points[-1],
    )
    # the rows count as generated, as verified rows do: another attention backend may serve the prompt's
    request.tokens += [0] * points[-1]
    request.blocks = list(range(num_blocks_for(len(request.tokens), builder.block_size)))
    return [builder.build([Span(request, context, rows, 0, rows)]) for rows in points]


def best_times(runner: Runner, batches: list[Batch], wait: Callable[[], None]) -> list[float]:
    """Seconds of the fastest pass of each batch."""
    best = [math.inf] * len(batches)
    for turn in range(ROUNDS_OF_FEW_ROWS):  # round robin: a short load on the machine then distorts no single point
        for i, batch in enumerate(batches):
            if turn >= ROUNDS and batch.num_rows > FEW_ROWS:
                break
            runner.forward(batch)  # warms the caches, as the step before does in steady decoding
            wait()
            began = time.perf_counter()
            runner.forward(batch)
            wait()
            best[i] = min(best[i], time.perf_counter() - began)
    return best
