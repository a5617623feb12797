"""What passes of a draft model compute, as spans: committed tokens of a sequence, and draft tokens behind them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.span import Span
from specserve.types import Draft

if TYPE_CHECKING:
    from specserve_draft_models.passes import DraftRows
    from specserve_draft_models.sequences import FedSequence


def draft_span(rows: DraftRows) -> Span:
    """The nodes from `rows.first` on; the sequence's committed tokens are all fed."""
    sequence, count = rows.sequence, len(rows.tokens) - rows.first
    num_tokens = len(sequence.request.tokens)
    if rows.parents is None:  # a chain goes on as committed tokens do
        draft = Draft(tokens=rows.tokens[rows.first :])
        return span_of(sequence, num_tokens + rows.first, count, count, draft=draft)
    draft = Draft(tokens=rows.tokens, parents=rows.parents)
    return span_of(sequence, num_tokens, count, count, draft=draft, first_node=rows.first)


def with_masks(span: Span, token: int, count: int) -> Span:
    """The span of committed tokens with masks behind them, all scored; each row sees those before it."""
    if not count:
        return span
    draft = Draft(tokens=(token,) * count)
    return msgspec.structs.replace(
        span, length=span.length + count, drafted=count, scored=span.scored + count, draft=draft
    )


def span_of(
    sequence: FedSequence, start: int, length: int, scored: int, *, draft: Draft | None = None, first_node: int = 0
) -> Span:
    """A span of the draft layers. All positions count as generated: one attention backend serves these layers."""
    request, drafted = sequence.request, 0 if draft is None else length
    return Span(
        request.id, start, length, drafted, scored, sequence.table,
        adapter=request.adapter, draft=draft, first_node=first_node,
    )  # fmt: skip
