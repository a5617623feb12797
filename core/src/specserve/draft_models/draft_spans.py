"""Rows of draft tokens as spans behind a sequence's committed tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.span import Span
from specserve.types import Draft

if TYPE_CHECKING:
    from specserve.draft_models.sequences import FedSequence
    from specserve.protocols import DraftRows


def draft_span(rows: DraftRows) -> Span:
    """The nodes from `rows.first` on; the sequence's committed tokens are all fed."""
    sequence: FedSequence = rows.sequence  # type: ignore[assignment]  # the runtime's own
    num_tokens, count = len(sequence.request.tokens), len(rows.tokens) - rows.first
    if rows.parents is None:  # a chain goes on as committed tokens do
        draft = Draft(tokens=rows.tokens[rows.first :])
        return Span(sequence.view, num_tokens + rows.first, count, count, count, draft)
    draft = Draft(tokens=rows.tokens, parents=rows.parents)
    return Span(sequence.view, num_tokens, count, count, count, draft, first_node=rows.first)
