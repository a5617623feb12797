"""Drafts the text about which a grammar leaves no choice: braces, keys, quotes, the rest of an enum's text.

As far as the grammar forces tokens they are known. The tail of a forced text is not: its last letters may be one
token with what follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Draft, Drafter
from specserve_grammar.processor import state_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llguidance import LLTokenizer

    from specserve.api import ForwardOutput, Verdict
    from specserve.api.batch import Request, ScheduledBatch

TAIL = 0.6
"""That a token of the tail is right, about."""


class GrammarDrafter(Drafter):
    name = "grammar"
    proposes_forced = True

    def __init__(self, tokenizer: LLTokenizer, most: int) -> None:
        self.tokenizer, self.most = tokenizer, most
        self.tokenize = tokenizer.tokenize_bytes

    def num_bytes(self, tokens: list[int]) -> int:
        return len(self.tokenizer.decode_bytes(tokens)) if tokens else 0

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        return [
            self.draft(span.request, limit) if limit and span.request.processors else None
            for span, limit in zip(batch.spans, limits, strict=True)
        ]

    def draft(self, request: Request, limit: int) -> Draft | None:
        state = state_of(request)
        if state is None:
            return None
        forced, text = state.matching.coming()
        tail = self.tokenize(text[self.num_bytes(forced) :])
        most = min(limit, self.most)
        tokens = (*forced, *tail)[:most]
        survival = (1.0,) * len(forced) + tuple(TAIL ** (i + 1) for i in range(len(tail)))
        return Draft(tokens=tokens, survival=survival[:most]) if tokens else None
