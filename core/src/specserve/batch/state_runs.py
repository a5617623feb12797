"""What recurrent layers compute of a batch: for each span its states, its rows and the parents of its draft tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.drafts import parents_of
from specserve.batch.mixer_inputs import StateRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch


def state_runs(batch: Batch) -> Sequence[StateRun]:
    if batch.runs is not None:
        return batch.runs.runs
    runs = []
    for span, first_row in zip(batch.spans, batch.row_offsets, strict=True):
        assert span.states is not None, "spans of a model with recurrent layers have states"
        parents = () if span.draft is None else parents_of(span.draft)
        runs.append(StateRun(span.states, first_row, span.known, parents))
    return runs
