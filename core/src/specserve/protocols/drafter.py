"""Drafters, and what they ask of the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import msgspec

from specserve.protocols.draft_model import DraftLayers
from specserve.protocols.target_keys import TargetKeys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.protocols.draft_model import DraftResources
    from specserve.protocols.target_keys import TargetKeyResources
    from specserve.protocols.target_pass import TargetPass
    from specserve.types import Draft, ForwardOutput, Verdict


class DrafterNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a drafter asks of the engine."""

    hidden_layers: tuple[int, ...] = ()
    """Layers whose output it reads in `ForwardOutput.hidden`; 0 is the embedding, num_layers the final norm's input,
    which may be written -1 here. The keys there are never negative."""
    layers: DraftLayers | None = None
    """Decoder layers of its own; `connect` is then given their cache and attention."""
    target_keys: TargetKeys | None = None
    """Layers that attend to the target's keys and values; `connect_target_keys` is then given what reads these."""
    target_rows: int = 0
    """How many rows of one request it computes with the target itself at most, in `propose`: the last token, and
    guesses behind it. `connect_target` is then given a `TargetPass`."""
    logits: bool = False
    """Reads `ForwardOutput.logits`: it proposes before drafters with passes of their own, which may overwrite them."""
    every_step: bool = False
    """Observes every step: `observe_step` is called after steps for which nobody wants a draft. For drafters that learn
    from what was committed. Where hidden layers, layers or logits are stated it is so anyway."""


class Drafter(ABC):
    """Drafts the next tokens of every request. A wrong draft token costs time and never changes an output token.

    A subclass has a `name` and the method `propose`; everything else has a default.
    """

    name: str
    needs: DrafterNeeds = DrafterNeeds()
    proposes_forced: bool = False
    """Whether it knows what must come, such as text about which a grammar leaves no choice: draft tokens with survival
    1.0 that lead its draft are the only ones that can come. It proposes before all others."""
    continues_forced: bool = False
    """Whether it has `propose_after`, and so can go on from the end of forced tokens."""
    pass_seconds: float = 0.0
    """The time of each pass after the first of the latest `propose`, if drafts grow by one token per pass; 0 if there
    was none."""

    def connect(self, resources: DraftResources) -> None:  # noqa: B027 (a default)
        """Called once, before any request, if the drafter states `needs.layers`."""

    def connect_target(self, target: TargetPass) -> None:  # noqa: B027 (a default)
        """Called once, before any request, if the drafter states `needs.target_rows`."""

    def connect_target_keys(self, keys: TargetKeyResources) -> None:  # noqa: B027 (a default)
        """Called once, before any request, if the drafter states `needs.target_keys`."""

    def start(self, request: Request) -> None:  # noqa: B027 (a default)
        """The request was admitted: its prompt is known, nothing is computed yet."""

    @abstractmethod
    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Sequence[Draft | None]:
        """One draft or None per span; `limits[i]` bounds the nodes for span i and is 0 where none is wanted. Not called
        after steps for which nobody wants a draft: see `observe_step`.

        Called after the verdict's tokens were appended to the requests. Spans of requests that ended in this step
        are still there: `stop` was called for them and their limit is 0. Their blocks are free, and keep their content
        until the next step is scheduled.
        """

    def propose_after(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        forced: Sequence[Sequence[int]],
    ) -> Sequence[Draft | None]:
        """`propose`, where `forced[i]` will come next in span i, whatever the model says: the draft is of what follows
        these tokens, and `limits[i]` does not count them. Called instead of `propose` where there are any, if the
        drafter states `continues_forced`."""
        raise NotImplementedError

    def observe_step(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict) -> None:
        """A step after which nobody wants a draft; called if `needs` states more than `target_rows`. Most steps of a
        server may be such, and each waits for it. A class without it is asked to `propose`, with limits of 0."""
        self.propose(batch, output, verdict, [0] * len(batch.spans))

    def idle_steps(self) -> int:
        """Asked after a step that the drafter observed, if it has `observe_idle`: of how many steps after that one it
        may be told later, as long as the same requests run, each with one row and no draft. 0: it is called after the
        next step as after this one."""
        return 0

    def observe_idle(  # noqa: B027 (a default)
        self, batch: ScheduledBatch, count: int, hidden: Sequence[Mapping[int, Tensor]]
    ) -> None:
        """`count` steps like this one, the last of them, ran since the drafter was called last. Called before any other
        method of it. `hidden`: the hidden states of all their rows in order, by layer, of one step or of several that
        lie together in each entry; none where no `hidden_layers` are stated."""

    def stop(self, request: Request) -> None:  # noqa: B027 (a default)
        """The request ended, for whatever reason."""
