"""What a step costs by query rows, requests and context: a table measured at start-up, corrected by real steps.

The table is never a straight line: tiles and graph buckets make it a staircase. It holds forward passes of one
request; a real step also attends for every request, plans, samples and walks drafts. That overhead is learned as
steps run, by batch size: a part of every plain step, and a part per draft token. What the length of the context adds
is measured, and taken from the latest step of each batch size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import accumulate
from typing import TYPE_CHECKING

from specserve.api import CostTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api.batch import ScheduledBatch

LEARNING_RATE, PRIOR_RATE = 0.1, 0.01
"""Step of the moving averages; and of the drift down to the prior while a batch size runs without draft tokens."""
REFERENCE_DRAFT_TOKENS = 2
"""A step with this many draft tokens corrects the plain overhead and the cost per draft token equally."""
BEND_RATE, BEND_LEAK = 0.03, 0.01
"""Of what is learned for a number of draft tokens by itself: least rate, and the drift back to the straight line."""
PLAIN_SHARE = 0.1
"""Steps with draft tokens correct what a plain one takes by this factor less than what draft tokens take: where those
seem too dear, plain steps follow and tell."""
PRIOR_PER_DRAFT, PRIOR_PER_DRAFT_TOKEN = 0.1, 0.03
"""Prior overhead of speculation, in steps of one row: of any draft at all, and of each draft token."""
USUAL_ERRORS, WINDOW, LIKE_THIS = 4.0, 5, 0.3
"""A step that is off by more than this many usual errors is an outlier, and counts as being off by no more, unless
most of the steps in the window were off in the same direction by at least this share of it."""
MANY_DRAFTED = 16
"""After so many steps with draft tokens in a row, of those that teach what they take, plain ones are learned anew: what
was known of them is of another time, and drafting was decided by it."""
LEAST_OF_TABLE = 0.3
"""Draft tokens' rows take at least this share of what the table says: rows of many requests may cost less than the
rows of one request that the table was measured with."""


class Errors:
    """The relative errors of the latest estimates: of plain steps, or of those with draft tokens."""

    __slots__ = ("latest", "usual")

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=WINDOW)
        self.usual = 0.0
        """A moving average of their absolute values."""

    def add(self, error: float) -> float:
        """How much of a step's relative error to learn from."""
        self.latest.append(error)
        like = LIKE_THIS * abs(error)
        same = sum(abs(other) >= like and (other > 0) == (error > 0) for other in self.latest)
        bounded = max(-1.0, min(error, 1.0))
        if len(self.latest) > 1 and 2 * same <= len(self.latest):
            most = USUAL_ERRORS * self.usual
            bounded = max(-most, min(bounded, most))
        self.usual += LEARNING_RATE * (abs(bounded) - self.usual)
        return bounded


class SizeCosts:
    """What was learned of batches of one size class (see `size_class`)."""

    __slots__ = (
        *("bends", "drafted_errors", "drafted_in_a_row", "each", "keys"),
        *("num_drafted", "num_plain", "plain", "plain_errors"),
    )

    def __init__(self, plain: float, keys: int, each: float) -> None:
        self.plain = plain
        """Seconds of a plain step beyond the table and its context."""
        self.keys = keys
        """Tokens of context of all requests, in the latest step."""
        self.each = each
        """Seconds of a draft token beyond the table."""
        self.bends: dict[int, float] = {}
        """Seconds beyond that straight line, of 1, 2, 4, 8, ... draft tokens, by the power of two."""
        self.plain_errors, self.drafted_errors = Errors(), Errors()
        self.num_drafted = self.num_plain = 0
        """Steps with draft tokens, and without."""
        self.drafted_in_a_row = 0

    def drafted(self) -> None:
        """A step had draft tokens."""
        self.num_drafted += 1
        self.drafted_in_a_row += 1

    def rate_of_plain(self) -> float:
        """How much of a plain step's error to learn from, of this one and those before it."""
        self.num_plain += 1
        return max(LEARNING_RATE, 1 / (self.num_plain + 1))

    def begin_plain(self) -> None:
        """A plain step follows."""
        if self.drafted_in_a_row >= MANY_DRAFTED:
            self.num_plain = 0
            self.plain_errors.latest.clear()
        self.drafted_in_a_row = 0


class StepCosts:
    """The table by linear interpolation, never falling, and what was learned on top.

    rows, seconds, per_key, buckets: as in `specserve.api.CostTable`.
    """

    def __init__(
        self, rows: Sequence[int], seconds: Sequence[float], per_key: float = 0.0, buckets: Sequence[int] = ()
    ) -> None:
        self.rows, self.table, self.per_key = rows, list(accumulate(seconds, max)), per_key
        last = rows[-1]
        padded = CostTable(list(rows), self.table, per_key, tuple(buckets)).padded
        self.by_row = [self.interpolated(min(padded(n), last)) for n in range(last + 1)]
        self.prior_per_draft = PRIOR_PER_DRAFT * self.table[0]
        self.prior_per_draft_token = PRIOR_PER_DRAFT_TOKEN * self.table[0]
        self.min_seconds = self.table[0] / 1e6
        """Lower bound of any answer: corrections may be negative."""
        self.sizes: dict[int, SizeCosts] = {}
        """By size class."""

    def interpolated(self, rows: int) -> float:
        at = max(1, bisect_left(self.rows, rows))
        if rows <= self.rows[0] or len(self.rows) == 1:
            return self.table[0]
        (r0, r1), (s0, s1) = self.rows[at - 1 : at + 1], self.table[at - 1 : at + 1]
        return s0 + (s1 - s0) * (rows - r0) / (r1 - r0)

    def seconds(self, rows: int, requests: int, draft_tokens: int = 0) -> float:
        """The time of a step of `rows` rows for `requests` requests; the last `draft_tokens` never make it shorter."""
        of_size = self.size_costs(requests)
        plain = max(self.table_at(rows - draft_tokens) + self.plain_of(of_size), self.min_seconds)
        return plain + (self.of_draft_tokens(rows, draft_tokens, of_size) if draft_tokens else 0.0)

    def by_draft_tokens(self, rows: int, requests: int, count: int) -> list[float]:
        """`seconds` of steps with `rows` rows and 0, 1, ... `count` draft tokens more, never falling."""
        of_size = self.size_costs(requests)
        first = self.table_at(rows)
        plain = max(first + self.plain_of(of_size), self.min_seconds)
        in_table = self.by_row[rows + 1 : rows + count + 1]
        in_table += [self.table_at(rows + n) for n in range(len(in_table) + 1, count + 1)]
        least, base = plain - LEAST_OF_TABLE * first, plain - first
        beyond = self.beyond(count, of_size)
        more = (max(least + LEAST_OF_TABLE * t, base + t + b) for t, b in zip(in_table, beyond, strict=True))
        return list(accumulate(more, max, initial=plain))

    def beyond(self, count: int, of_size: SizeCosts | None) -> list[float]:
        """What 1, 2, ... `count` draft tokens take beyond the table."""
        if of_size is None:
            return [self.prior_per_draft + n * self.prior_per_draft_token for n in range(1, count + 1)]
        each, result = of_size.each, list[float]()
        for place in range(count.bit_length()):
            first = 1 << place
            bend = self.bend_at(place, of_size)
            slope = (self.bend_at(place + 1, of_size) - bend) / first
            result += [bend + n * each + slope * (n - first) for n in range(first, min(2 * first, count + 1))]
        return result

    def of_draft_tokens(self, rows: int, draft_tokens: int, of_size: SizeCosts | None) -> float:
        """The time that the last `draft_tokens` rows take; at least a share of what the table says."""
        in_table = self.table_at(rows) - self.table_at(rows - draft_tokens)
        if of_size is None:
            return in_table + self.prior_per_draft + draft_tokens * self.prior_per_draft_token
        beyond = draft_tokens * of_size.each + self.bend(draft_tokens, of_size)
        return max(LEAST_OF_TABLE * in_table, in_table + beyond)

    def bend(self, draft_tokens: int, of_size: SizeCosts) -> float:
        """Linear between the powers of two."""
        at = draft_tokens.bit_length() - 1
        share = draft_tokens / (1 << at) - 1.0
        below = self.bend_at(at, of_size)
        return below + share * (self.bend_at(at + 1, of_size) - below) if share else below

    def bend_at(self, place: int, of_size: SizeCosts) -> float:
        """That of the nearest number that was seen."""
        bends = of_size.bends
        known = bends.get(place)
        if known is None and bends:
            known = bends[min(bends, key=lambda other: abs(other - place))]
        return self.prior_per_draft if known is None else known

    def table_at(self, rows: int) -> float:
        last = self.rows[-1]
        return self.by_row[rows] if rows <= last else self.table[-1] * rows / last  # proportional beyond the table

    def size_costs(self, requests: int) -> SizeCosts | None:
        """A size class that has not run yet takes what is known of the nearest one."""
        size = size_class(requests)
        known = self.sizes.get(size)
        if known is None and self.sizes:
            known = self.sizes[min(self.sizes, key=lambda other: abs(size - other))]
        return known

    def knows(self, requests: int) -> bool:
        """Whether steps of about as many requests were observed."""
        return size_class(requests) in self.sizes

    def plain_of(self, of_size: SizeCosts | None) -> float:
        return 0.0 if of_size is None else of_size.plain + self.per_key * of_size.keys

    def usual_errors(self) -> dict[int, float]:
        """The usual relative error of an estimate, by the smallest number of requests of each class that ran."""
        by_size = [(size, self.sizes[size]) for size in sorted(self.sizes) if size]
        return {1 << (size - 1): max(c.plain_errors.usual, c.drafted_errors.usual) for size, c in by_size}

    def observe(self, batch: ScheduledBatch, seconds: float) -> None:
        """Correct the estimates by one step without prefill."""
        if not batch.only_decodes:
            return
        requests = len(batch.spans)
        draft_tokens = batch.num_rows - requests
        keys = sum(span.start for span in batch.spans)
        of_size = self.sizes.get(size_class(requests))
        if of_size is None:
            expected = self.seconds(batch.num_rows, requests, draft_tokens)
            beyond = seconds - expected + self.plain_of(self.size_costs(requests))
            self.sizes[size_class(requests)] = SizeCosts(beyond - self.per_key * keys, keys, self.prior_per_draft_token)
            return
        of_size.keys = keys
        if not draft_tokens:
            of_size.begin_plain()
        expected = self.seconds(batch.num_rows, requests, draft_tokens)
        errors = of_size.drafted_errors if draft_tokens else of_size.plain_errors
        error = expected * errors.add((seconds - expected) / expected)
        if draft_tokens:
            in_table = self.table_at(batch.num_rows) - self.table_at(requests)
            self.learn_draft_tokens(of_size, draft_tokens, in_table / draft_tokens, error)
            return
        of_size.plain += of_size.rate_of_plain() * error
        # without this decay, a cost that was once too high would never be measured again; a low one needs none
        of_size.each += PRIOR_RATE * min(self.prior_per_draft_token - of_size.each, 0.0)
        for place, bend in of_size.bends.items():
            of_size.bends[place] = bend + PRIOR_RATE * min(self.prior_per_draft - bend, 0.0)

    def learn_draft_tokens(self, of_size: SizeCosts, draft_tokens: int, in_table: float, error: float) -> None:
        """`in_table`: seconds of each draft token."""
        least = (LEAST_OF_TABLE - 1.0) * in_table * draft_tokens  # beyond the table
        of_size.drafted()
        if error < 0.0 and draft_tokens * of_size.each + self.bend(draft_tokens, of_size) <= least:
            # they take no less, so a plain step does
            of_size.plain += LEARNING_RATE * error
            return
        # a normalised gradient step on both parameters: the plain overhead is learned even if every step drafts
        feature = draft_tokens / REFERENCE_DRAFT_TOKENS
        norm = 1 + feature * feature
        of_size.plain += LEARNING_RATE / norm * error * PLAIN_SHARE
        rate = max(LEARNING_RATE / norm, 1 / norm / (of_size.num_drafted + 1))
        learned = of_size.each + rate * error * feature / REFERENCE_DRAFT_TOKENS
        # a draft token's row costs no more than a whole step of one row
        of_size.each = min(max(least / draft_tokens, learned), self.table[0])
        at = draft_tokens.bit_length() - 1
        share = draft_tokens / (1 << at) - 1.0
        for place, weight in ((at, 1.0 - share), (at + 1, share)):
            if weight:
                bend = self.bend_at(place, of_size)
                of_size.bends[place] = (1.0 - BEND_LEAK) * bend + BEND_RATE * weight * error


def size_class(requests: int) -> int:
    """Batches of 1, 2..3, 4..7, 8..15, ... requests share a class each."""
    return requests.bit_length()
