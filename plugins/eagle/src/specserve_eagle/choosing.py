"""Draft tokens for the rows of a pass, by the sampler of the kernel set in use.

A fault of a request's own logits processor costs its draft and nothing else: verification meets it again and names it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import RequestFault
from specserve.protocols import DraftVocabulary, ScoredRow
from specserve.sampling.drafts import draft_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import DraftToken, Sampler


class TokenChooser:
    """`draft_ids`: [D] int64, the target's ids of the draft model's; None where both are the same."""

    def __init__(self, sampler: Sampler, vocab_size: int, draft_ids: Tensor | None) -> None:
        self.draft_tokens = getattr(sampler, "draft_tokens", draft_tokens)
        self.vocabulary = None if draft_ids is None else DraftVocabulary(draft_ids, vocab_size)

    def choose(
        self, logits: Tensor, rows: Sequence[tuple[Request, tuple[int, ...]]], count: int
    ) -> list[list[DraftToken]]:
        """logits: [n, D] float32; rows: the request of each, and the draft tokens before it. The best tokens, best
        first: at most `count`, and none for a request whose processor fails."""
        scored = [ScoredRow(i, request, path) for i, (request, path) in enumerate(rows)]
        try:
            found: list[list[DraftToken]] = self.draft_tokens(logits, scored, self.vocabulary, count)
        except RequestFault:
            found = [[] for _ in scored]
            plain = [row for row in scored if not row.request.processors]
            if plain:
                for row, tokens in zip(plain, self.draft_tokens(logits, plain, self.vocabulary, count), strict=True):
                    found[row.row] = tokens
        return found
