"""What recurrent layers compute of a batch: for each span its states, its rows and the parents of its draft tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import parents_of

if TYPE_CHECKING:
    from specserve.batch.batch import Batch
    from specserve.batch.span_states import SpanStates


class StateRun(NamedTuple):
    """What is computed for one span: from its states, and its rows in the batch."""

    states: SpanStates
    first_row: int
    known: int
    parents: tuple[int, ...]
    """Of its draft tokens; -1 for children of the last committed token."""


def state_runs(batch: Batch) -> list[StateRun]:
    runs = []
    for span, first_row in zip(batch.spans, batch.row_offsets, strict=True):
        assert span.states is not None, "spans of a model with recurrent layers have states"
        parents = () if span.draft is None else parents_of(span.draft)
        runs.append(StateRun(span.states, first_row, span.known, parents))
    return runs
