"""Consecutive steps in which the same requests get one more token each and nothing is drafted.

Most steps of a server whose requests back off from drafting are such. They are only counted, and their hidden states
kept; what they mean for each request is worked out for all of them together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.draft_models.sequences import FedSequence

MAX_RUN_ROWS = 512
"""Rows whose hidden states a run keeps."""


class Member(NamedTuple):
    """A request of the run."""

    request: Request
    blocks: list[int]
    """The request's own list, until it is preempted."""
    start: int
    """The position that the first step computes."""
    sequence: FedSequence


class SilentRun:
    """At most `most` steps of these requests, in the order of their spans."""

    def __init__(self, members: Sequence[Member], most: int) -> None:
        self.members, self.most = members, min(most, MAX_RUN_ROWS // max(len(members), 1))
        self.steps: list[Mapping[int, Tensor]] = []
        """The hidden states that each step computed."""

    def goes_on(self, batch: Batch) -> bool:
        """Whether this step is the run's next one."""
        count = len(self.steps)
        if count >= self.most or batch.num_rows != len(self.members) or len(batch.spans) != len(self.members):
            return False
        for span, (request, blocks, start, _) in zip(batch.spans, self.members, strict=True):
            if span.request is not request or span.start != start + count or request.blocks is not blocks:
                return False
        return True

    def add(self, hidden: Mapping[int, Tensor]) -> None:
        self.steps.append(hidden)


def begin_run(batch: Batch, sequences: Mapping[str, FedSequence], max_len: int, max_waiting: int) -> SilentRun | None:
    """A run whose first step this is. None where it is not such a step, or where more than `max_waiting` positions
    (below `max_len`) of a request would wait."""
    members = []
    most = max_waiting
    for span in batch.spans:
        request = span.request
        sequence = sequences.get(request.id)
        if sequence is None or span.length != 1 or sequence.was_restarted(span.start):
            return None
        if sequence.is_complete:
            most = min(most, max_waiting - (min(span.start, max_len) - sequence.num_fed))
        members.append(Member(request, request.blocks, span.start, sequence))
    return SilentRun(members, most) if most > 0 else None
