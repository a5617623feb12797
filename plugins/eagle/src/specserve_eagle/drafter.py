"""Drafts with a draft model: one pass over what it lacks of the committed tokens, then one pass per further depth.

All requests of a step share the passes; one that wants fewer draft tokens takes part in fewer. Owns neither layers nor
arithmetic (`DraftModel`) nor what is committed (`specserve.protocols.DraftRuntime`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from specserve.protocols import DrafterNeeds, DraftRows
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols import DraftRuntime, DraftSequence, Feed
    from specserve.types import ForwardOutput, Verdict
    from specserve_eagle.choosing import TokenChooser
    from specserve_eagle.passes import DraftModel, DraftStep


@dataclass(slots=True, eq=False)
class Chain:
    """The draft of one request while it grows."""

    sequence: DraftSequence
    width: int
    tokens: list[int] = field(default_factory=list)
    survival: list[float] = field(default_factory=list)

    def append(self, token: int, probability: float) -> None:
        self.tokens.append(token)
        self.survival.append(probability * self.survival[-1] if self.survival else probability)

    @property
    def is_done(self) -> bool:
        return len(self.tokens) == self.width

    def draft(self) -> Draft:
        return Draft(tokens=tuple(self.tokens), survival=tuple(self.survival), source=EagleDrafter.name)


class EagleDrafter:
    """`specserve.protocols.Drafter` of chains."""

    name = "eagle"

    def __init__(self, model: DraftModel, chooser: TokenChooser, steps: int) -> None:
        self.model, self.chooser, self.steps = model, chooser, steps
        self.needs = DrafterNeeds(hidden_layers=model.hidden_layers, layers=model.layers)
        self.runtime: DraftRuntime | None = None
        """Set by `connect`, which start-up calls before any request."""

    def connect(self, runtime: DraftRuntime) -> None:
        self.runtime = runtime
        self.model.connect(runtime)

    def start(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.start(request)

    def stop(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.stop(request)

    @torch.inference_mode()
    def propose(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        assert self.runtime is not None
        drafts: list[Draft | None] = [None] * len(limits)
        feed = self.runtime.collect(batch, output, verdict, limits)
        if feed is None:
            return drafts
        step = self.model.read_committed(feed)
        self.runtime.done(feed)
        if feed.drafting:
            chains = self.begin(feed, limits)
            self.grow(chains, step)
            for i, chain in zip(feed.drafting, chains, strict=True):
                drafts[i] = chain.draft()
        return drafts

    def begin(self, feed: Feed, limits: Sequence[int]) -> list[Chain]:
        """A chain for each request that is drafted for, as wide as it wants and as its positions allow."""
        longest = self.model.layers.max_len
        return [
            Chain(sequence, min(limits[i], self.steps, longest - len(sequence.request.tokens)))
            for i, sequence in zip(feed.drafting, feed.sequences, strict=False)
        ]

    def grow(self, chains: Sequence[Chain], step: DraftStep) -> None:
        """`step`: of the pass over the committed tokens, whose scored rows are the chains' roots."""
        assert self.runtime is not None
        while True:
            self.append(chains, step.logits)
            rows = [i for i, chain in enumerate(chains) if not chain.is_done]
            if not rows:
                return
            hidden = rows_of(step.hidden, rows, len(chains))
            chains = [chains[i] for i in rows]
            batch = self.runtime.draft_batch(
                [DraftRows(chain.sequence, tuple(chain.tokens), first=len(chain.tokens) - 1) for chain in chains]
            )
            step = self.model.read_drafted(batch, hidden)

    def append(self, chains: Sequence[Chain], logits: Tensor) -> None:
        requests = [chain.sequence.request for chain in chains]
        choices = self.chooser.choose(logits, requests, [tuple(chain.tokens) for chain in chains])
        for chain, choice in zip(chains, choices, strict=True):
            chain.append(choice.token, choice.probability)


def rows_of(hidden: Tensor | None, rows: Sequence[int], count: int) -> Tensor | None:
    """The hidden states of these rows of `count`."""
    if hidden is None or len(rows) == count:
        return hidden
    return hidden[rows]
