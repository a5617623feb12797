"""Times forward passes at start-up: the table of step costs that planners begin with."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.span import Span
from specserve.batch.span_states import SpanStates
from specserve.kv.slots import num_blocks_for
from specserve.kv.states import EMPTY, FIRST_OWN
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
STRIDE = 7919
"""From one row's token to the next. Rows of equal tokens would all go to the same experts, and passes of equal rows
would find those in the processor's cache: in a model with experts, both would cost less than rows of text do."""


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
    passes = [TimedPass(context, rows) for rows in points]
    if longer >= 2 * context:
        passes.append(TimedPass(longer, 1))
    best = best_times(probe, passes, time.perf_counter() + seconds)
    table = [(rows, best[i]) for i, rows in enumerate(points) if best[i] < math.inf]
    per_key = 0.0
    if len(passes) > len(points) and best[-1] < math.inf:
        per_key = max(0.0, (best[-1] - best[0]) / (longer - context))
    return CostTable([rows for rows, _ in table], [each for _, each in table], per_key, buckets)


class TimedPass(NamedTuple):
    """Of one request with `context` prompt tokens: its next `rows` rows."""

    context: int
    rows: int

    def batch(self, probe: CostProbe, turn: int) -> Batch:
        """With other tokens in every turn."""
        size, vocab = self.context + self.rows, probe.runner.model.vocab_size
        tokens = [(turn * size + at) * STRIDE % vocab for at in range(size)]
        blocks = list(range(num_blocks_for(size, probe.builder.block_size)))
        # the rows count as generated, as verified rows do: another attention backend may serve the prompt's
        states = SpanStates(self.context, EMPTY, (), target=FIRST_OWN) if probe.runner.model.recurrent else None
        span = Span("cost", self.context, self.rows, 0, self.rows, blocks, prompt_len=self.context, states=states)
        return probe.builder.build([span], [tokens])


def best_times(probe: CostProbe, passes: Sequence[TimedPass], deadline: float) -> list[float]:
    """Seconds of the fastest of each; infinite for those that there was no time for."""
    best = [math.inf] * len(passes)
    for turn in range(ROUNDS_OF_FEW_ROWS):  # round robin: a short load on the machine then distorts no single point
        for i, each in enumerate(passes):
            if turn >= ROUNDS and each.rows > FEW_ROWS:
                continue
            if time.perf_counter() > deadline and (turn or i >= LEAST_POINTS):
                return best
            probe.runner.forward(each.batch(probe, 2 * turn))  # warms the caches, as the step before does in decoding
            probe.wait()
            batch = each.batch(probe, 2 * turn + 1)
            began = time.perf_counter()
            probe.runner.forward(batch)
            probe.wait()
            best[i] = min(best[i], time.perf_counter() - began)
    return best
