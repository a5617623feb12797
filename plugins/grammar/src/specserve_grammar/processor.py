"""The logits processor: every row gets the mask of its own path.

Owns which requests have a grammar. Knows nothing about drafts but their shape.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING

from specserve.api import LogitsProcessor
from specserve.api.drafts import ROOT, keep, parents_of
from specserve.api.sampling import EditingState
from specserve_grammar.matching import Matching
from specserve_grammar.sources import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import Draft, LogitEdits
    from specserve.api.batch import Request
    from specserve_grammar.grammars import Grammars


class GrammarState(EditingState):
    """Of a request with a grammar."""

    only_forbids = True
    cuts_drafts = True

    def __init__(self, matching: Matching) -> None:
        self.matching = matching

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        forced = self.matching.forced(path)
        if forced is None:
            edits.keep_bits(self.matching.allowed(path))
        else:
            edits.keep_only(array("q", [forced]))

    def only(self, path: Sequence[int]) -> int | None:
        return self.matching.forced(path)

    def allows(self, path: Sequence[int], token: int) -> bool:
        return self.matching.allows(path, token)

    def commit(self, tokens: Sequence[int]) -> None:
        self.matching.commit(tokens)

    def cut(self, draft: Draft) -> Draft | None:
        """Without the nodes that the grammar forbids."""
        if draft.parents is None:
            allowed = self.matching.num_allowed(draft.tokens)
            return draft if allowed == len(draft.tokens) else keep(draft, set(range(allowed)))
        kept: set[int] = set()
        paths: dict[int, tuple[int, ...]] = {ROOT: ()}
        for node, (parent, token) in enumerate(zip(parents_of(draft), draft.tokens, strict=True)):
            if parent not in paths:
                continue
            path = (*paths[parent], token)
            if self.matching.num_allowed(path) == len(path):
                paths[node] = path
                kept.add(node)
        return draft if len(kept) == len(draft.tokens) else keep(draft, kept)


class GrammarProcessor(LogitsProcessor):
    """Never switched off: a request would go on without its grammar."""

    essential = True
    output_kinds = KINDS

    def __init__(self, grammars: Grammars, ends: frozenset[int]) -> None:
        self.grammars, self.ends = grammars, ends

    def start(self, request: Request, vocab_size: int) -> GrammarState | None:
        wanted = request.params.structured_output
        if wanted is None:
            return None
        anew = partial(self.grammars.recompiled, wanted)
        return GrammarState(Matching(self.grammars.matcher(wanted), vocab_size, self.ends, anew))


def state_of(request: Request) -> GrammarState | None:
    """None where the request has no grammar."""
    for state in request.processors:
        if isinstance(state, GrammarState):
            return state
    return None
