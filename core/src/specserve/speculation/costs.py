"""What a step costs by its query rows: a table measured at start-up, and what real steps say of it.

Never a straight line: tiles and graph buckets make stairs of it, so the points lie on both sides of them. The
table holds forward passes of one request; a real step also attends for every request, plans, samples and
walks drafts. What that adds is learned as steps run, by the number of requests: to a plain step, and per guess.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

from specserve.batch.request import Request
from specserve.batch.span import Span
from specserve.types import GenerateRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve.batch.batch import Batch, BatchBuilder
    from specserve.engine.runner import Runner

POINTS = (1, 4, 8, 16, 32, 33, 64, 65, 128, 256)
CONTEXT = 256
ROUNDS, SMALL, ROUNDS_OF_SMALL = 4, 16, 12
"""Passes of few rows are quick, and their small differences decide whether a guess pays."""
ADAPTATION, FORGETTING = 0.1, 0.005
GUESSES = 2
"""A step of so many guesses teaches as much of what a plain step costs as of what they do."""
PER_DRAFTING, PER_GUESS = 0.15, 0.03
"""What guesses are believed to add to the table, in steps of one row: any at all, and each until its cost was seen."""


class StepCosts:
    """The table by linear interpolation, never falling, and what was learned on top."""

    def __init__(self, rows: list[int], seconds: list[float]) -> None:
        self.rows, self.table = rows, list(accumulate(seconds, max))
        self.measured = [self.interpolated(rows) for rows in range(rows[-1] + 1)]
        self.per_drafting, self.believed = PER_DRAFTING * self.table[0], PER_GUESS * self.table[0]
        self.least = self.table[0] / 1e6
        """A step takes some time, whatever was learned."""
        self.plain: dict[int, float] = {}
        """By the size of the batch, see `size_of`: seconds that a plain step takes beyond the table."""
        self.per_guess: dict[int, float] = {}
        """By the same: seconds that a guess takes beyond the table."""
        self.num_guessing: dict[int, int] = {}
        """By the same: steps with guesses so far; the first of them teach more than later ones."""

    def interpolated(self, rows: int) -> float:
        at = max(1, bisect_left(self.rows, rows))
        if rows <= self.rows[0] or len(self.rows) == 1:
            return self.table[0]
        (r0, r1), (s0, s1) = self.rows[at - 1 : at + 1], self.table[at - 1 : at + 1]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def seconds(self, rows: int, requests: int, guesses: int = 0) -> float:
        """Of a step of so many rows for so many requests; the last `guesses` rows are guesses."""
        plain = max(self.table_at(rows) + self.plain_at(size_of(requests)), self.least)
        if not guesses:
            return plain
        return plain + self.per_drafting + guesses * self.per_guess.get(size_of(requests), self.believed)

    def by_guesses(self, rows: int, requests: int, most: int) -> list[float]:
        """`seconds` of a step of so many rows and 0, 1, ... `most` guesses more."""
        size = size_of(requests)
        plain, each = self.plain_at(size), self.per_guess.get(size, self.believed)
        drafting = plain + self.per_drafting
        more = (self.table_at(rows + n) + drafting + n * each for n in range(1, most + 1))
        return [max(seconds, self.least) for seconds in (self.table_at(rows) + plain, *more)]

    def table_at(self, rows: int) -> float:
        most = self.rows[-1]
        return self.measured[rows] if rows <= most else self.table[-1] * rows / most  # as steep as the whole table

    def plain_at(self, size: int) -> float:
        """Of a batch of a size that never ran: that of the nearest size."""
        known = self.plain.get(size)
        if known is None and self.plain:
            known = self.plain[min(self.plain, key=lambda other: abs(size - other))]
        return known or 0.0

    def observe(self, batch: Batch, seconds: float) -> None:
        """Move what is learned towards what a step without prefill took. One that something else held up counts as
        twice what was expected at most."""
        requests = len(batch.spans)
        guesses = batch.num_rows - requests
        if sum(span.drafted for span in batch.spans) != guesses:
            return
        size = size_of(requests)
        if size not in self.plain:
            self.plain[size] = seconds - self.seconds(batch.num_rows, requests, guesses) + self.plain_at(size)
            return
        expected = self.seconds(batch.num_rows, requests, guesses)
        error = min(seconds, 2 * expected) - expected
        each = self.per_guess.get(size, self.believed)
        # a normalised gradient step on both: guesses in every step must not hide what a plain one costs
        share = guesses / GUESSES
        rate = ADAPTATION / (1 + share * share)
        self.plain[size] += rate * error
        if guesses:  # a guess's row costs no more than a whole step of one row
            seen = self.num_guessing[size] = self.num_guessing.get(size, 0) + 1
            rate = max(rate, 1 / (1 + share * share) / (seen + 1))
            self.per_guess[size] = min(max(0.0, each + rate * error * share / GUESSES), self.table[0])
        else:
            # what is not seen any more is forgotten, or a cost once too high could never be seen to fall
            self.per_guess[size] = each + FORGETTING * (self.believed - each)


def size_of(requests: int) -> int:
    """1, 2..3, 4..7, 8..15, ... requests have a size each."""
    return requests.bit_length()


def measure_costs(
    runner: Runner, builder: BatchBuilder, *, num_blocks: int, most_rows: int, wait: Callable[[], None]
) -> StepCosts:
    """Time forward passes over an empty cache; `wait` blocks until the device is done. Run before serving."""
    room = min(num_blocks * builder.block_size, runner.model.max_model_len)
    context = max(1, min(CONTEXT, room // 2))
    points = [rows for rows in POINTS if rows <= min(most_rows, room - context)] or [1]
    request = Request.admit(
        GenerateRequest(request_id="cost", prompt_token_ids=(0,) * context),
        seed=0,
        arrival=0.0,
        order=0,
        max_len=context + points[-1],
    )
    # generated, like what is verified: a prompt may be served by another attention backend
    request.tokens += [0] * points[-1]
    request.blocks = list(range(-(-len(request.tokens) // builder.block_size)))
    batches = [builder.build([Span(request, context, rows, 0, rows)]) for rows in points]
    table = [math.inf] * len(points)
    for turn in range(ROUNDS_OF_SMALL):  # in turn, so that a busy moment of the machine cannot spoil one point alone
        for at, batch in enumerate(batches):
            if turn >= ROUNDS and points[at] > SMALL:
                break
            runner.forward(batch)  # as in steady decoding: the pass before had the same shape and left caches warm
            wait()
            began = time.perf_counter()
            runner.forward(batch)
            wait()
            table[at] = min(table[at], time.perf_counter() - began)
    return StepCosts(points, table)
