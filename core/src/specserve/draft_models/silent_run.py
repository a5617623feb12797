"""Consecutive steps of the same requests in which a draft model is not asked.

Most steps of a server are such: requests back off from drafting, or another drafter's draft is verified. What such a
step computed and decided is only kept; what that means for each request is worked out for all of them together.
"""

from __future__ import annotations

from math import inf
from operator import is_
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.hidden_states import as_one

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.batch.span import Span
    from specserve.draft_models.sequences import FedSequence
    from specserve.types import SpanVerdict, Verdict

MAX_RUN_ROWS = 512
"""Rows whose hidden states a run keeps."""


class Member(NamedTuple):
    """A request of the run."""

    request: Request
    blocks: list[int]
    """The request's own list, until it is preempted."""
    sequence: FedSequence
    most: float
    """So many of its positions may be computed before its complete blocks have to be fed."""


class SilentStep(NamedTuple):
    """A step, the hidden states of its rows, and below which position each request was computed afterwards."""

    batch: Batch
    verdict: Verdict
    hidden: Mapping[int, Tensor]
    ends: Sequence[int]


class Committed(NamedTuple):
    """What the run computed of a request: the positions from `start` on, below `end`."""

    sequence: FedSequence
    start: int
    rows: Sequence[int]
    """Of all the run's rows, those of these positions."""
    end: int
    blocks: Sequence[int]


class SilentRun:
    """Steps of these requests, in the order of their spans. `starts`: the position that each computes first.

    Every request of the batch is looked at in every step, in between the target's passes: comparisons of whole lists
    are what the interpreter does fastest.
    """

    def __init__(self, members: Sequence[Member], starts: Sequence[int]) -> None:
        self.members = members
        self.requests = [member.request for member in members]
        self.blocks = [member.blocks for member in members]
        self.first_starts, self.starts = starts, list(starts)
        """`starts`: of the next step."""
        self.left = self.steps_left()
        """So many more plain steps may run before a request has to be fed."""
        self.steps: list[SilentStep] = []
        self.num_rows = 0

    def goes_on(self, batch: Batch) -> bool:
        """Whether this step is the run's next one."""
        spans = batch.spans
        if [span.request for span in spans] != self.requests or [span.start for span in spans] != self.starts:
            return False
        if self.num_rows + batch.num_rows > MAX_RUN_ROWS:
            return False
        if not all(map(is_, [request.blocks for request in self.requests], self.blocks)):
            return False
        if batch.num_rows == len(spans):
            return self.left >= 1
        pairs = zip(spans, self.members, strict=True)
        return all(span.length == 1 + span.drafted <= member.most - span.start for span, member in pairs)

    def add(self, batch: Batch, verdict: Verdict, hidden: Mapping[int, Tensor]) -> None:
        """Call after the step was committed: of an accepted path, less may count as computed."""
        if batch.num_rows == len(batch.spans):
            self.starts = [start + 1 for start in self.starts]
            self.left -= 1
        else:
            self.starts = [request.computed for request in self.requests]
            self.left = self.steps_left()
        self.steps.append(SilentStep(batch, verdict, hidden, self.starts))
        self.num_rows += batch.num_rows

    def steps_left(self) -> float:
        return min((member.most - start for member, start in zip(self.members, self.starts, strict=True)), default=inf)

    @property
    def hidden(self) -> Sequence[Mapping[int, Tensor]]:
        """Of all rows, in order."""
        return as_one([step.hidden for step in self.steps])

    def committed(self) -> Iterator[Committed]:
        count, stride = len(self.steps), len(self.members)
        is_plain = self.num_rows == count * stride
        for i, (_, blocks, sequence, _) in enumerate(self.members):
            rows = range(i, count * stride, stride) if is_plain else self.rows_of(i)
            yield Committed(sequence, self.first_starts[i], rows, self.starts[i], blocks)

    def rows_of(self, i: int) -> Sequence[int]:
        rows: list[int] = []
        first, start = 0, self.first_starts[i]
        for batch, verdict, _, ends in self.steps:
            committed = committed_rows(batch.spans[i], verdict.spans[i], first + batch.row_offsets[i])
            rows += committed[: ends[i] - start]
            first, start = first + batch.num_rows, ends[i]
        return rows


def begin_run(batch: Batch, sequences: Mapping[str, FedSequence], max_len: int, max_waiting: int) -> SilentRun | None:
    """A run whose first step this is. None where it is not such a step, or where more than `max_waiting` positions
    (below `max_len`) of a request would wait."""
    members = []
    for span in batch.spans:
        request = span.request
        sequence = sequences.get(request.id)
        if sequence is None or span.length != 1 + span.drafted or sequence.was_restarted(span.start):
            return None
        most: float = sequence.num_fed + max_waiting
        if not sequence.is_complete or most >= max_len:  # the rest is not fed, or never waits so long
            most = inf
        members.append(Member(request, request.blocks, sequence, most))
    run = SilentRun(members, [span.start for span in batch.spans])
    return run if run.goes_on(batch) else None


def committed_rows(span: Span, decided: SpanVerdict, offset: int) -> Sequence[int]:
    """Rows of the step that are committed now: its committed tokens and the accepted draft tokens."""
    end = offset + span.known
    if not decided.path:
        return range(offset, end)
    return [*range(offset, end), *(end + node for node in decided.path)]
