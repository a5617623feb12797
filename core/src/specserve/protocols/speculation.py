"""Drafters, draft planners and verifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec

from specserve.protocols.draft_model import DraftLayers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols.draft_model import DraftRuntime
    from specserve.types import Draft, ForwardOutput, Verdict


class DrafterNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a drafter asks of the engine."""

    hidden_layers: tuple[int, ...] = ()
    """Layers whose output it reads in `ForwardOutput.hidden`; 0 is the embedding, num_layers the final norm's input,
    which may be written -1 here. The keys there are never negative."""
    layers: DraftLayers | None = None
    """Decoder layers of its own; `connect` then hands it their cache and attention."""
    step_costs: bool = False
    """Reads `DraftRuntime.costs`, so that these are measured at start-up whichever planner there is."""


class Drafter(Protocol):
    """Drafts the next tokens of every request. A wrong draft token costs time and never changes an output token."""

    name: str
    needs: DrafterNeeds

    def start(self, request: Request) -> None:
        """The request was admitted: its prompt is known, nothing is computed yet."""
        ...

    def propose(
        self, batch: Batch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> Sequence[Draft | None]:
        """One draft or None per span; `limits[i]` bounds the nodes for span i and is 0 where none is wanted.

        Called after the verdict's tokens were appended to the requests. Spans of requests that ended in this step
        are still there: `stop` was called for them and their limit is 0. Their blocks are free, and keep their content
        until the next step is scheduled.
        """
        ...

    def stop(self, request: Request) -> None:
        """The request ended, for whatever reason."""
        ...


class ModelDrafter(Drafter, Protocol):
    """A drafter that states `needs.layers`."""

    def connect(self, runtime: DraftRuntime) -> None:
        """Called once, before any request."""
        ...


class DraftPlanner(Protocol):
    """Decides how many tokens to draft and which of them to verify."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """The most nodes worth drafting for each request."""
        ...

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        """Which part of each request's draft to verify: at most `budget` nodes in all, parents with their children.

        `base_rows` counts the rows that the step computes in any case.
        """
        ...

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """After the step: what was accepted, and how long the step took."""
        ...


class CostLearner(DraftPlanner, Protocol):
    """A planner that is told what asking takes, too."""

    def asked(self, seconds: float, num_asked: int) -> None:
        """To ask for so many requests took so long: of several drafters the cheapest, since the others are asked only
        where they pay for themselves. Not called for steps with prompts, which draft models read in any case."""
        ...


class Verifier(Protocol):
    """Decides tokens from logits. The default is drafter-invariant; a lossy one sets `lossless = False`."""

    name: str
    lossless: bool

    def verify(self, batch: Batch, output: ForwardOutput) -> Verdict: ...
