"""Commits tokens to the native index and turns what it proposes into drafts: one call per step for the whole batch.

Owns which tokens of a request the index has. Knows nothing about how it matches.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.api import Draft, Drafter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import ForwardOutput, Verdict
    from specserve.api.batch import Request, ScheduledBatch
    from specserve_ngram._native import Index


@dataclass(slots=True, eq=False)
class IndexedRequest:
    """A request in the index: its handle there, and how many of its tokens the index has."""

    handle: int
    num_tokens: int


class NgramDrafter(Drafter):
    """The index gets a prompt at admission, generated tokens when a draft is wanted, and the rest at the end."""

    name = "ngram"
    continues_forced = True

    def __init__(self, index: Index, max_draft_tokens: int | None = None) -> None:
        self.index = index
        self.max_draft_tokens = max_draft_tokens
        self.requests: dict[str, IndexedRequest] = {}

    def start(self, request: Request) -> None:
        handle = self.index.start(request.namespace, array("i", request.tokens))
        self.requests[request.id] = IndexedRequest(handle, len(request.tokens))

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        return self.propose_after(batch, output, verdict, limits, ())

    def propose_after(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        forced: Sequence[Sequence[int]],
    ) -> list[Draft | None]:
        """`num_tokens` grows once the index has the tokens: after a step that fails the next one sends them again."""
        drafts: list[Draft | None] = [None] * len(limits)
        handles, tokens, counts, bounds = array("q"), array("i"), array("i"), array("i")
        before, num_before = array("i"), array("i")
        stepped: list[tuple[int, IndexedRequest, int]] = []
        maximum = self.max_draft_tokens
        for i, limit in enumerate(limits):
            if limit <= 0:
                continue
            request = batch.spans[i].request
            indexed = self.requests.get(request.id)
            if indexed is None:
                continue
            new = request.tokens[indexed.num_tokens :]
            handles.append(indexed.handle)
            tokens.extend(new)
            counts.append(len(new))
            bounds.append(limit if maximum is None or limit < maximum else maximum)
            stepped.append((i, indexed, len(new)))
            if forced:
                before.extend(forced[i])
                num_before.append(len(forced[i]))
        if not stepped:
            return drafts
        after = (before, num_before) if forced else ()
        proposals = self.index.step(handles, tokens, counts, bounds, *after)
        for (i, indexed, count), proposal in zip(stepped, proposals, strict=True):
            indexed.num_tokens += count
            if proposal is not None:
                drafts[i] = Draft(tokens=proposal[0], parents=proposal[1], survival=proposal[2], source="ngram")
        return drafts

    def stop(self, request: Request) -> None:
        """Whatever ended the request, the index gets the rest of its committed tokens."""
        indexed = self.requests.pop(request.id, None)
        if indexed is not None:
            self.index.stop(indexed.handle, array("i", request.tokens[indexed.num_tokens :]))
