"""Times forward passes at start-up: the table of step costs that planners begin with."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.span import Span
from specserve.kv.slots import num_blocks_for
from specserve.protocols import CostTable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.builder import BatchBuilder
    from specserve.models.runner import Runner

POINTS = (1, 4, 8, 16, 32, 33, 64, 65, 128, 256)
"""Query rows. Tiles make the cost a staircase, so points lie on both sides of its edges. Steps that are padded to graph
buckets are timed at full buckets."""
CONTEXT, LONG_CONTEXT = 256, 4096
"""Tokens before the timed rows; and where it is timed how much more a longer context takes."""
ROUNDS = 4
FEW_ROWS, ROUNDS_OF_FEW_ROWS = 16, 12
"""Passes of few rows are short, and small differences between them decide whether a draft token pays."""
LEAST_POINTS = 2


class CostProbe(NamedTuple):
    """What passes are timed with."""

    runner: Runner
    builder: BatchBuilder
    num_blocks: int
    max_rows: int
    wait: Callable[[], None]
    """Blocks until the device is done."""


def measure_costs(probe: CostProbe, seconds: float) -> CostTable:
    """Time forward passes over an empty cache, before serving, for about so long: a slow model at fewer points."""
    runner, builder = probe.runner, probe.builder
    buckets = tuple(runner.row_buckets)
    padded = CostTable([], [], buckets=buckets).padded
    cache_tokens = min(probe.num_blocks * builder.block_size, runner.model.max_model_len)
    context = max(1, min(CONTEXT, cache_tokens // 2))
    most = min(probe.max_rows, cache_tokens - context)
    padded_points = {padded(rows) for rows in POINTS}
    points = sorted(rows for rows in padded_points if rows <= most) or [1]
    longer = min(LONG_CONTEXT, cache_tokens - 1)
    batches = probe_batches(builder, context, points)
    if longer >= 2 * context:
        batches += probe_batches(builder, longer, [1])
    best = best_times(probe, batches, time.perf_counter() + seconds)
    table = [(rows, best[i]) for i, rows in enumerate(points) if best[i] < math.inf]
    per_key = 0.0
    if len(batches) > len(points) and best[-1] < math.inf:
        per_key = max(0.0, (best[-1] - best[0]) / (longer - context))
    return CostTable([rows for rows, _ in table], [each for _, each in table], per_key, buckets)


def probe_batches(builder: BatchBuilder, context: int, points: Sequence[int]) -> list[Batch]:
    """One request with `context` prompt tokens, and a batch of its next rows for each point."""
    tokens = [0] * (context + points[-1])
    blocks = list(range(num_blocks_for(len(tokens), builder.block_size)))
    # the rows count as generated, as verified rows do: another attention backend may serve the prompt's
    spans = [Span("cost", context, rows, 0, rows, blocks, prompt_len=context) for rows in points]
    return [builder.build([span], [tokens]) for span in spans]


def best_times(probe: CostProbe, batches: Sequence[Batch], deadline: float) -> list[float]:
    """Seconds of the fastest pass of each batch; infinite for batches that there was no time for."""
    best = [math.inf] * len(batches)
    for turn in range(ROUNDS_OF_FEW_ROWS):  # round robin: a short load on the machine then distorts no single point
        for i, batch in enumerate(batches):
            if turn >= ROUNDS and batch.num_rows > FEW_ROWS:
                continue
            if time.perf_counter() > deadline and (turn or i >= LEAST_POINTS):
                return best
            probe.runner.forward(batch)  # warms the caches, as the step before does in steady decoding
            probe.wait()
            began = time.perf_counter()
            probe.runner.forward(batch)
            probe.wait()
            best[i] = min(best[i], time.perf_counter() - began)
    return best
