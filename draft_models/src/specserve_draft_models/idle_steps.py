"""Consecutive steps of the same requests in which a draft model does not draft.

Most steps of a server are such: requests back off from drafting, or another drafter's draft is verified. What such a
step computed and decided is only kept; what that means for each request is worked out for all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.hidden_states import as_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve.types import SpanVerdict, Verdict
    from specserve_draft_models.sequences import FedSequence

MIN_RUN_ROWS, MAX_RUN_ROWS, RUN_BYTES = 512, 4096, 2**22
"""Rows whose hidden states a run keeps: as many as fit RUN_BYTES, within the other two."""


class Member(NamedTuple):
    """A request of the run."""

    request: Request
    blocks: list[int]
    """The request's own list, until it is preempted."""
    sequence: FedSequence
    most: float
    """The number of its positions that may be computed before its complete blocks have to be fed."""


@dataclass(slots=True)
class PlainSteps:
    """Steps of one row for each request. Nothing else of them is kept: their memory is there for the next steps."""

    first_row: int
    """Its number among the run's rows."""
    count: int = 0


class DraftedStep(NamedTuple):
    """A step with draft tokens, and the positions that each request computed in it: from `starts` on, below `ends`."""

    first_row: int
    batch: ScheduledBatch
    verdict: Verdict
    starts: Sequence[int]
    ends: Sequence[int]


class Committed(NamedTuple):
    """What the run computed of a request: the positions from `start` on, below `end`."""

    sequence: FedSequence
    start: int
    rows: Sequence[int]
    """The run's rows of these positions."""
    end: int
    blocks: Sequence[int]


class RunLimits(NamedTuple):
    """What ends a run."""

    max_len: int
    """Positions from this on are not read by the draft layers."""
    max_pending: int
    """Positions of a request below that which may wait."""
    max_rows: int
    """Rows of all steps."""


class IdleSteps:
    """Steps of these requests, in the order of their spans. `starts`: the position that each computes first.

    Every request of the batch is looked at in every step, in between the target's passes: comparisons of whole lists
    are what the interpreter does fastest.
    """

    def __init__(self, members: Sequence[Member], starts: Sequence[int], max_rows: int) -> None:
        self.members, self.max_rows = members, max_rows
        self.requests = [member.request for member in members]
        self.blocks = [member.blocks for member in members]
        self.first_starts, self.starts = starts, list(starts)
        """`starts`: of the next step."""
        self.left = self.steps_left()
        """The number of plain steps that may still run before a request has to be fed."""
        self.steps: list[PlainSteps | DraftedStep] = []
        self.num_rows = 0
        self.hidden: list[Mapping[int, Tensor]] = []
        """The hidden states of all rows, in order."""

    def goes_on(self, batch: ScheduledBatch) -> bool:
        """Whether this step is the run's next one."""
        spans = batch.spans
        if [span.request for span in spans] != self.requests or [span.start for span in spans] != self.starts:
            return False
        if self.num_rows + batch.num_rows > self.max_rows:
            return False
        if not all(map(is_, [request.blocks for request in self.requests], self.blocks)):
            return False
        if batch.num_rows == len(spans):
            return self.left >= 1
        pairs = zip(spans, self.members, strict=True)
        return all(span.length == 1 + span.drafted <= member.most - span.start for span, member in pairs)

    def add(self, batch: ScheduledBatch, verdict: Verdict, hidden: Mapping[int, Tensor]) -> None:
        """Call after the step was committed: of an accepted path, less may count as computed."""
        if batch.num_rows == len(batch.spans):
            self.add_plain(1, batch.num_rows, [hidden] if hidden else ())
            return
        before, self.starts = self.starts, [request.computed for request in self.requests]
        self.steps.append(DraftedStep(self.num_rows, batch, verdict, before, self.starts))
        self.left = self.steps_left()
        self.add_rows(batch.num_rows, [hidden] if hidden else ())

    def add_plain(self, count: int, num_rows: int, hidden: Sequence[Mapping[int, Tensor]]) -> None:
        """As many plain steps. num_rows: of each; hidden: of all their rows."""
        last = self.steps[-1] if self.steps else None
        if not isinstance(last, PlainSteps):
            last = PlainSteps(self.num_rows)
            self.steps.append(last)
        last.count += count
        self.starts = [start + count for start in self.starts]
        self.left -= count
        self.add_rows(count * num_rows, hidden)

    def add_rows(self, num_rows: int, hidden: Sequence[Mapping[int, Tensor]]) -> None:
        for step in hidden:
            self.hidden[-1:] = as_one([*self.hidden[-1:], step])
        self.num_rows += num_rows

    def idle_steps(self) -> int:
        """How many plain steps may run before one of the limits is reached."""
        return int(min(self.left, (self.max_rows - self.num_rows) // max(len(self.members), 1)))

    def steps_left(self) -> float:
        return min((member.most - start for member, start in zip(self.members, self.starts, strict=True)), default=inf)

    def committed(self) -> Iterator[Committed]:
        for i, (_, blocks, sequence, _) in enumerate(self.members):
            rows = [self.rows_of(i, step) for step in self.steps]
            yield Committed(
                sequence, self.first_starts[i], rows[0] if len(rows) == 1 else [*chain(*rows)], self.starts[i], blocks
            )

    def rows_of(self, i: int, step: PlainSteps | DraftedStep) -> Sequence[int]:
        if isinstance(step, PlainSteps):
            stride = len(self.members)
            return range(step.first_row + i, step.first_row + step.count * stride, stride)
        first_row, batch, verdict, starts, ends = step
        rows = committed_rows(batch.spans[i], verdict.spans[i], first_row + batch.row_offsets[i])
        return rows[: ends[i] - starts[i]]


def begin_run(batch: ScheduledBatch, sequences: Mapping[str, FedSequence], limits: RunLimits) -> IdleSteps | None:
    """A run whose first step this is. None where it is not such a step, or is beyond the limits."""
    members = []
    for span in batch.spans:
        request = span.request
        sequence = sequences.get(request.id)
        if sequence is None or span.length != 1 + span.drafted or sequence.was_restarted(span.start):
            return None
        most: float = sequence.num_fed + limits.max_pending
        if not sequence.is_complete or most >= limits.max_len:  # the rest is not fed, or never waits so long
            most = inf
        members.append(Member(request, request.blocks, sequence, most))
    run = IdleSteps(members, [span.start for span in batch.spans], limits.max_rows)
    return run if run.goes_on(batch) else None


def max_run_rows(row_bytes: int) -> int:
    """`row_bytes`: of a hidden state, 0 where none are read."""
    return min(max(MIN_RUN_ROWS, RUN_BYTES // max(row_bytes, 1)), MAX_RUN_ROWS)


def committed_rows(span: ScheduledSpan, decided: SpanVerdict, offset: int) -> Sequence[int]:
    """Rows of the step that are committed now: its committed tokens and the accepted draft tokens."""
    end = offset + span.known
    if not decided.path:
        return range(offset, end)
    return [*range(offset, end), *(end + node for node in decided.path)]
