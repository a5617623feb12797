"""The one unit of work: prefill, chunked prefill, decode and verify are spans."""

from __future__ import annotations

import msgspec

from specserve.batch.request import Request
from specserve.batch.span_states import SpanStates
from specserve.types import Draft


class Span(msgspec.Struct, frozen=True):
    """Compute tokens [start, start+length) of a sequence; the last `drafted` of them are draft tokens.

    Prefill is (n, 0), decode (1, 0), verify (1+k, k). Plain data: another process can compute it.
    """

    request_id: str
    start: int
    length: int
    drafted: int
    scored: int
    """The number of trailing rows that get logits: 0 while the committed tokens are not all computed, drafted+1
    afterwards, every row when the prompt is scored."""
    blocks: list[int]
    """Ids of the KV blocks of the sequence, in order, where `specserve.kv.slots` finds token i: the request's own list,
    which changes after the step."""
    prompt_len: int = 0
    """Positions from this one on are generated."""
    adapter: str = ""
    """The version of an adapter that the rows are computed with; empty for the base model."""
    is_greedy: bool = False
    """Whether the largest logits decide, as they are."""
    draft: Draft | None = None
    """The draft tokens."""
    states: SpanStates | None = None
    """Of recurrent layers; None where the model has none."""
    first_node: int = 0
    """In the passes of a draft model: rows are the draft tokens from this one on; the others are in the cache."""
    sees_ahead: bool = False
    """In the passes of a draft model: every row sees all rows of the span, those behind it, too. Such a span is a chain
    of draft tokens. A layer's window begins where it would for the row alone: it is counted back from the row's key."""

    @property
    def known(self) -> int:
        """How many of the rows are committed tokens."""
        return self.length - self.drafted


class ScheduledSpan(Span, frozen=True, kw_only=True):
    """A span of the target with its live request: what verifiers, drafters, planners and observers are handed."""

    request: Request
    proposed: Draft | None = None
    """What the drafter had proposed; the planner chose `draft` from it and learns from all of it."""

    @classmethod
    def of(
        cls,
        request: Request,
        start: int,
        length: int,
        *,
        scored: int,
        draft: Draft | None = None,
        is_greedy: bool = False,
    ) -> ScheduledSpan:
        """`length` committed tokens of the request from `start` on, and the draft tokens behind them."""
        drafted = 0 if draft is None else len(draft.tokens)
        return cls(
            request.id, start, length + drafted, drafted, scored, request.blocks, request.prompt_len, request.adapter,
            is_greedy, draft, request=request, proposed=request.draft,
        )  # fmt: skip

    def without_draft(self) -> ScheduledSpan:
        """The same committed tokens alone."""
        return msgspec.structs.replace(
            self, length=self.known, drafted=0, scored=self.scored - self.drafted, draft=None
        )

    @property
    def reaches_end(self) -> bool:
        """Whether this span decides at least one new token."""
        return self.start + self.known == len(self.request.tokens)
