"""Feeds the native index what was committed and makes drafts of its answers: one call per step.

Owns which tokens of a request the index has. Knows nothing about how it matches.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.protocols import DrafterNeeds
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.types import ForwardOutput, Verdict
    from specserve_ngram._native import Index


@dataclass(slots=True, eq=False)
class Fed:
    """The index has the first `count` tokens of the request that it calls `handle`."""

    handle: int
    count: int


class NgramDrafter:
    """Text goes in whole at admission, as committed while drafts are asked for, and to its end at the end."""

    name = "ngram"
    needs = DrafterNeeds()

    def __init__(self, index: Index, max_draft_tokens: int | None = None) -> None:
        self.index = index
        self.max_draft_tokens = max_draft_tokens
        self.requests: dict[str, Fed] = {}

    def start(self, request: Request) -> None:
        handle = self.index.start(request.namespace, array("i", request.tokens))
        self.requests[request.id] = Fed(handle, len(request.tokens))

    def propose(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        """What is fed is counted when the index has it: a step that fails is made up for by the next."""
        drafts: list[Draft | None] = [None] * len(limits)
        handles, tokens, counts, bounds = array("q"), array("i"), array("i"), array("i")
        asked: list[tuple[int, Fed, int]] = []
        most = self.max_draft_tokens
        for i, limit in enumerate(limits):
            if limit <= 0:
                continue
            request = batch.spans[i].request
            fed = self.requests.get(request.id)
            if fed is None:
                continue
            new = request.tokens[fed.count :]
            handles.append(fed.handle)
            tokens.extend(new)
            counts.append(len(new))
            bounds.append(limit if most is None or limit < most else most)
            asked.append((i, fed, len(new)))
        if not asked:
            return drafts
        answers = self.index.step(handles, tokens, counts, bounds)
        for (i, fed, count), answer in zip(asked, answers, strict=True):
            fed.count += count
            if answer is not None:
                drafts[i] = Draft(tokens=answer[0], parents=answer[1], survival=answer[2], source="ngram")
        return drafts

    def stop(self, request: Request) -> None:
        """Whatever ended it, its committed text is the index's."""
        fed = self.requests.pop(request.id, None)
        if fed is not None:
            self.index.stop(fed.handle, array("i", request.tokens[fed.count :]))
