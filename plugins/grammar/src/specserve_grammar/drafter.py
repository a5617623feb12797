"""Drafts the text about which a grammar leaves no choice: braces, keys, quotes, the rest of an enum's text.

The text is certain; its tokens are a guess, which the target verifies: a model may write a text in other tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols import DrafterNeeds
from specserve.types import Draft
from specserve_grammar.processor import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.types import ForwardOutput, Verdict
    from specserve_grammar.matching import Matching

LAST = 0.7
"""Survival of the last token of a forced text, which may be one with what follows."""


class GrammarDrafter:
    name = "grammar"
    needs = DrafterNeeds()

    def __init__(self, tokenize: Callable[[bytes], list[int]], most: int) -> None:
        self.tokenize, self.most = tokenize, most

    def start(self, request: Request) -> None:
        pass

    def propose(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        return [
            self.draft(span.request, limit) if limit and span.request.processors else None
            for span, limit in zip(batch.spans, limits, strict=True)
        ]

    def draft(self, request: Request, limit: int) -> Draft | None:
        state = state_of(request)
        if state is None:
            return None
        tokens = self.forced_tokens(state.matching)
        kept = tuple(tokens[: min(limit, self.most)])
        if not kept:
            return None
        last = 1.0 if len(kept) < len(tokens) else LAST
        return Draft(tokens=kept, survival=(1.0,) * (len(kept) - 1) + (last,))

    def forced_tokens(self, matching: Matching) -> list[int]:
        text = matching.forced_text()
        return self.tokenize(text) if text else []

    def stop(self, request: Request) -> None:
        pass
