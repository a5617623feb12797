"""The one unit of work: prefill, chunked prefill, decode and verify are spans."""

from __future__ import annotations

import msgspec

from specserve.batch.request import Request
from specserve.types import Draft


class Span(msgspec.Struct, frozen=True):
    """Compute tokens [start, start+length) of a request; the last `drafted` of them are draft tokens.

    Prefill is (n, 0), decode (1, 0), verify (1+k, k). `scored` trailing rows get logits: 0 while the
    committed tokens are not all computed, drafted+1 afterwards, every row when the prompt is scored.
    """

    request: Request
    start: int
    length: int
    drafted: int
    scored: int
    draft: Draft | None = None
    """The draft tokens that this step verifies."""
    proposed: Draft | None = None
    """What the drafter had proposed; the planner chose `draft` from it and learns from all of it."""
    first_node: int = 0
    """In the passes of a draft model: rows are the draft tokens from this one on; the others are in the cache."""

    @property
    def known(self) -> int:
        """How many of the rows are committed tokens."""
        return self.length - self.drafted

    def without_guesses(self) -> Span:
        """The same committed tokens alone."""
        return Span(self.request, self.start, self.known, 0, self.scored - self.drafted, None, self.proposed)

    @property
    def reaches_end(self) -> bool:
        """Whether this span decides at least one new token."""
        return self.start + self.known == len(self.request.tokens)
