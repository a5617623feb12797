"""What a step costs by its query rows: a table measured at start-up, corrected by real steps.

The table is never a straight line: tiles and graph buckets make it a staircase. It holds forward passes of one
request; a real step also attends for every request, plans, samples and walks drafts. That overhead is learned as
steps run, by batch size: a part of every plain step, and a part per draft token.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specserve.batch.batch import Batch

LEARNING_RATE, PRIOR_RATE = 0.1, 0.005
"""Step of the moving averages; and of the drift back to the prior while a batch size runs without draft tokens."""
REFERENCE_GUESSES = 2
"""A step with this many draft tokens corrects the plain overhead and the cost per draft token equally."""
PRIOR_PER_DRAFT, PRIOR_PER_GUESS = 0.1, 0.03
"""Prior overhead of speculation, in steps of one row: of any draft at all, and of each draft token."""
LEAST_OF_TABLE = 0.3
"""A draft token's row takes at least this share of what the table says: rows of many requests may cost less than the
rows of one request that the table was measured with."""


class StepCosts:
    """The table by linear interpolation, never falling, and what was learned on top."""

    def __init__(self, rows: list[int], seconds: list[float]) -> None:
        self.rows, self.table = rows, list(accumulate(seconds, max))
        self.by_row = [self.interpolated(rows) for rows in range(rows[-1] + 1)]
        self.per_draft, self.prior_per_guess = PRIOR_PER_DRAFT * self.table[0], PRIOR_PER_GUESS * self.table[0]
        self.min_seconds = self.table[0] / 1e6
        """Lower bound of any answer: corrections may be negative."""
        self.plain: dict[int, float] = {}
        """By batch size class (see `size_class`): seconds of a plain step beyond the table."""
        self.per_guess: dict[int, float] = {}
        """By size class: seconds of a draft token beyond the table."""
        self.num_drafted_steps: dict[int, int] = {}
        """By size class: steps with draft tokens so far; the first of them count for more."""

    def interpolated(self, rows: int) -> float:
        at = max(1, bisect_left(self.rows, rows))
        if rows <= self.rows[0] or len(self.rows) == 1:
            return self.table[0]
        (r0, r1), (s0, s1) = self.rows[at - 1 : at + 1], self.table[at - 1 : at + 1]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def seconds(self, rows: int, requests: int, guesses: int = 0) -> float:
        """Of a step with so many rows for so many requests; the last `guesses` rows are draft tokens, which never make
        it shorter."""
        plain = max(self.table_at(rows) + self.plain_at(size_class(requests)), self.min_seconds)
        if not guesses:
            return plain
        each = self.per_guess.get(size_class(requests), self.prior_per_guess)
        return max(plain + self.per_draft + guesses * each, self.seconds(rows - guesses, requests))

    def by_guesses(self, rows: int, requests: int, most: int) -> list[float]:
        """`seconds` of a step of so many rows and 0, 1, ... `most` draft tokens more, never falling."""
        size = size_class(requests)
        plain, each = self.plain_at(size), self.per_guess.get(size, self.prior_per_guess)
        overhead = plain + self.per_draft
        more = (self.table_at(rows + n) + overhead + n * each for n in range(1, most + 1))
        return list(accumulate((self.table_at(rows) + plain, *more), max, initial=self.min_seconds))[1:]

    def table_at(self, rows: int) -> float:
        last = self.rows[-1]
        return self.by_row[rows] if rows <= last else self.table[-1] * rows / last  # proportional beyond the table

    def plain_at(self, size: int) -> float:
        """A size class that has not run yet takes the value of the nearest one."""
        known = self.plain.get(size)
        if known is None and self.plain:
            known = self.plain[min(self.plain, key=lambda other: abs(size - other))]
        return known or 0.0

    def observe(self, batch: Batch, seconds: float) -> None:
        """Correct the estimates by one step without prefill. An outlier counts as twice the expectation at most."""
        if not batch.only_decodes:
            return
        requests = len(batch.spans)
        guesses = batch.num_rows - requests
        size = size_class(requests)
        if size not in self.plain:
            self.plain[size] = seconds - self.seconds(batch.num_rows, requests, guesses) + self.plain_at(size)
            return
        expected = self.seconds(batch.num_rows, requests, guesses)
        error = min(seconds, 2 * expected) - expected
        each = self.per_guess.get(size, self.prior_per_guess)
        # a normalised gradient step on both parameters: the plain overhead is learned even if every step drafts
        feature = guesses / REFERENCE_GUESSES
        rate = LEARNING_RATE / (1 + feature * feature)
        self.plain[size] += rate * error
        if guesses:  # a draft token's row costs no more than a whole step of one row
            seen = self.num_drafted_steps[size] = self.num_drafted_steps.get(size, 0) + 1
            rate = max(rate, 1 / (1 + feature * feature) / (seen + 1))
            in_table = (self.table_at(batch.num_rows) - self.table_at(requests)) / guesses
            learned = each + rate * error * feature / REFERENCE_GUESSES
            self.per_guess[size] = min(max((LEAST_OF_TABLE - 1.0) * in_table, learned), self.table[0])
        else:  # without this decay, a cost that was once too high would never be measured again
            self.per_guess[size] = each + PRIOR_RATE * (self.prior_per_guess - each)


def size_class(requests: int) -> int:
    """Batches of 1, 2..3, 4..7, 8..15, ... requests share a class each."""
    return requests.bit_length()
