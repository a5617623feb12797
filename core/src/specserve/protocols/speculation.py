"""Drafters, draft planners and verifiers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from specserve.protocols.draft_model import DraftLayers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.protocols.draft_model import DraftRuntime, TargetCosts
    from specserve.types import Draft, ForwardOutput, PlannerFigures, Verdict


class DrafterNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What a drafter asks of the engine."""

    hidden_layers: tuple[int, ...] = ()
    """Layers whose output it reads in `ForwardOutput.hidden`; 0 is the embedding, num_layers the final norm's input,
    which may be written -1 here. The keys there are never negative."""
    layers: DraftLayers | None = None
    """Decoder layers of its own; `connect` then hands it their cache and attention."""
    step_costs: bool = False
    """Reads `DraftRuntime.costs`, so that these are measured at start-up whichever planner there is."""
    logits: bool = False
    """Reads `ForwardOutput.logits`: it is asked before drafters with passes of their own, which may overwrite them."""
    every_step: bool = False
    """Hears every step: `propose` is called, with limits of 0, after steps for which nobody wants a draft, too. For
    drafters that learn from what was committed. Where any other need is stated it is so anyway."""


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
        """One draft or None per span; `limits[i]` bounds the nodes for span i and is 0 where none is wanted. Not called
        after steps for which nobody wants a draft, unless `needs` states anything.

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


class CertainDrafter(Drafter, Protocol):
    """A drafter that knows what must come, such as text about which a grammar leaves no choice. It is asked first."""

    is_certain: bool
    """Draft tokens with survival 1.0 that lead its draft are the only ones that can come."""


class ContinuingDrafter(Drafter, Protocol):
    """A drafter that can go on from the end of tokens that are certain."""

    def propose_behind(
        self,
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        certain: Sequence[Sequence[int]],
    ) -> Sequence[Draft | None]:
        """`propose`, where `certain[i]` will come next in span i, whatever the model says: the draft is of what follows
        these tokens, and `limits[i]` does not count them. Called instead of `propose` where any are certain."""
        ...


class PassTimer(Drafter, Protocol):
    """A drafter whose drafts grow by one token per pass, and that tells what a pass takes."""

    pass_seconds: float
    """Of each pass after the first of the latest `propose`; 0 where there was none."""


class DraftPlanner(Protocol):
    """Decides how many tokens to draft and which of them to verify."""

    def limits(self, requests: Sequence[Request]) -> list[int]:
        """The most nodes worth drafting for each request."""
        ...

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> Sequence[Draft | int | None]:
        """Which part of each request's draft to verify, parents with their children; a number stands for so many of its
        first nodes. At most `budget` nodes in all.

        `base_rows` counts the rows that the step computes in any case.
        """
        ...

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """After the step: what was accepted, and the seconds from the step's begin until its tokens were committed."""
        ...


class SurvivalEstimates(Protocol):
    """Calibrated estimates of what survives verification, shared by the planner and by what compares drafters."""

    def survival(self, draft: Draft, request: Request) -> Sequence[float]:
        """P(node and its ancestors are accepted), for every node of a draft for this request; never above its
        parent's."""
        ...

    def observe(self, draft: Draft, request: Request, tokens: Sequence[int]) -> None:
        """Learn from a draft, verified or not. `tokens`: what the target gave after the draft's root."""
        ...


class CostTable(NamedTuple):
    """What forward passes of one request take."""

    rows: list[int]
    """Query rows of each measured pass, ascending."""
    seconds: list[float]
    per_key: float = 0.0
    """Seconds that a pass takes longer for each token of context."""
    buckets: tuple[int, ...] = ()
    """Rows that steps are padded to, ascending; empty where they are not."""


class PlanningRuntime(Protocol):
    """What the engine hands to `make_draft_planner`."""

    drafters: tuple[str, ...]
    """The names of the drafters to plan for."""
    identity: Mapping[str, str]
    """What measured costs depend on: machine, model, configuration, versions."""

    def measure_costs(self, seconds: float) -> CostTable:
        """Time forward passes for about so long; before any request."""
        ...


class EstimateSharer(DraftPlanner, Protocol):
    """A planner with estimates of its own, which learns from every draft of `Span.proposed`; the engine compares
    drafters by the same."""

    calibration: SurvivalEstimates


class DepthPlanner(DraftPlanner, Protocol):
    """A planner that may know what each pass of a draft model costs."""

    bounds_depth: bool
    """Whether its limits bound chains to the depth that pays: drafters then need not decide that."""


class CostSharer(DraftPlanner, Protocol):
    """A planner that knows what steps take: drafters that state `needs.step_costs` read the same."""

    costs: TargetCosts


class PausingPlanner(DraftPlanner, Protocol):
    """A planner that need not be called in every step."""

    pause: int
    """After `limits` gave 0 for all: for so many steps neither `limits` nor `learn` need be called, as long as the same
    requests run."""

    def paused(self, batch: Batch, seconds: Sequence[float]) -> None:
        """Steps like this one, the last of them, ran without it and took so long each, from their begin until their
        tokens were committed. Called before the next `limits`."""
        ...


class CostLearner(DraftPlanner, Protocol):
    """A planner that is told what asking takes, too."""

    def asked(self, seconds: float, num_asked: int, pass_seconds: float) -> None:
        """To ask for so many requests took so long: of several drafters the cheapest, since the others are asked only
        where they pay for themselves. `pass_seconds`: of each of a single drafter's passes after the first; 0 where it
        tells none. Not called for steps with prompts, which draft models read in any case."""
        ...


class TellingPlanner(DraftPlanner, Protocol):
    """A planner that tells what it decided."""

    def request_figures(self, request_id: str) -> PlannerFigures | None:
        """Of a running request, for its answer. None: nothing is known of it."""
        ...

    def describe(self) -> dict[str, Any]:
        """For /v1/plugins, as JSON: the mode, and what was decided so far. Any thread may ask."""
        ...


class Verifier(Protocol):
    """Decides tokens from logits. The default is drafter-invariant; a lossy one sets `lossless = False`."""

    name: str
    lossless: bool

    def verify(self, batch: Batch, output: ForwardOutput) -> Verdict:
        """One SpanVerdict per span, from raw logits. Called again with fewer spans where it raises."""
        ...
