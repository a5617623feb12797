"""Planners, which decide how much is drafted and verified, and composers, which decide between several drafters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.proposals import OpenDraft, Proposal
    from specserve.batch.request import Request
    from specserve.protocols.draft_model import TargetCosts
    from specserve.types import Draft, PlannerStats, Verdict


class DraftComposer(ABC):
    """Where several drafters are enabled: which of them propose for which requests, and what becomes of their drafts.

    In every step `draft_order` is called first, then for each drafter `limits` and, after it proposed, `observe_cost`,
    then `combine` for each request. Drafters that propose forced tokens are always called, before all others.
    """

    def draft_order(self, drafters: Sequence[str]) -> Sequence[str]:
        """The drafters in the order in which they propose. Those that read logits come before others all the same."""
        return drafters

    @abstractmethod
    def limits(self, drafter: str, drafts: Sequence[OpenDraft]) -> Sequence[int]:
        """How many tokens this drafter may propose for each request, from 0 to the limit there."""

    def observe_cost(self, drafter: str, seconds: float, num_requests: int) -> None:  # noqa: B027 (a default)
        """It proposed for `num_requests` requests in `seconds`. Not called for steps with prompts, which draft models
        read in any case."""

    @abstractmethod
    def combine(self, request: Request, proposals: Sequence[Proposal], limit: int) -> Draft | None:
        """The request's draft: one of the proposals, of which there is at least one, or a tree of several with at most
        `limit` nodes, whose `sources` name the drafter of each node."""

    def observe(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:  # noqa: B027 (a default)
        """After a step, before drafters propose for the next: what was accepted, and the seconds from its begin until
        its tokens were committed. Of requests that ended in it, `stop` was called."""

    def stop(self, request: Request) -> None:  # noqa: B027 (a default)
        """The request ended, for whatever reason."""


class DraftPlanner(ABC):
    """Decides how many tokens to draft and which of them to verify.

    A subclass has the methods `limits` and `choose`; everything else has a default. One that learns overrides methods
    that observe.
    """

    bounds_depth: bool = False
    """Whether its limits bound chains to the depth that pays: drafters then need not decide that."""
    costs: TargetCosts | None = None
    """What it knows of the time that steps take, for drafters that weigh their passes against it."""
    composer: DraftComposer | None = None
    """Decides where several drafters are enabled; None: the first draft of each request is taken."""

    @abstractmethod
    def limits(self, requests: Sequence[Request]) -> list[int]:
        """The most nodes worth drafting for each request."""

    @abstractmethod
    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> Sequence[Draft | int | None]:
        """Which part of each request's draft to verify, parents with their children; a number stands for its
        first nodes. At most `budget` nodes in all. Whatever order a tree was proposed in, its paths follow each other
        here, the likeliest child of each node first.

        `base_rows` counts the rows that the step computes in any case.
        """

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:  # noqa: B027 (a default)
        """After the step: what was accepted, and the seconds from the step's begin until its tokens were committed."""

    def observe_drafting(  # noqa: B027 (a default)
        self, seconds: float, num_requests: int, pass_seconds: float
    ) -> None:
        """Drafting for `num_requests` requests took `seconds`, of several drafters the first one's: the others propose
        only where they pay for themselves. `pass_seconds`: see `Drafter.pass_seconds`; 0 where there are several
        drafters. Not called for steps with prompts, which draft models read in any case."""

    def idle_steps(self) -> int:
        """The number of steps for which neither `limits` nor `learn` need be called, as long as the same requests run.
        Called after `limits` gave 0 for all."""
        return 0

    def observe_idle(self, batch: ScheduledBatch, seconds: Sequence[float]) -> None:  # noqa: B027 (a default)
        """Steps like this one, the last of them, ran idle. `seconds`: each one's, from its begin until its tokens were
        committed. Called before the next `limits`."""

    def request_stats(self, request_id: str) -> PlannerStats | None:
        """The planner's stats of a running request, for its answer. None: nothing is known of it."""
        return None

    def describe(self) -> dict[str, Any] | None:
        """For /v1/plugins, as JSON: the mode, and what was decided so far. Any thread may ask. None: nothing."""
        return None


class CostTable(NamedTuple):
    """What forward passes of one request take."""

    rows: list[int]
    """Query rows of each measured pass, ascending."""
    seconds: list[float]
    per_key: float = 0.0
    """Seconds that a pass takes longer for each token of context."""
    buckets: tuple[int, ...] = ()
    """Rows that steps are padded to, ascending; empty where they are not."""

    def padded(self, rows: int) -> int:
        """The rows of a step that is padded to the next bucket; beyond the last, it is not."""
        at = bisect_left(self.buckets, rows)
        return self.buckets[at] if at < len(self.buckets) else rows


class PlanningRuntime(Protocol):
    """What the engine hands to `make_draft_planner`."""

    drafters: tuple[str, ...]
    """The names of the drafters to plan for."""
    identity: Mapping[str, str]
    """What measured costs depend on: machine, model, configuration, versions."""

    def measure_costs(self, seconds: float) -> CostTable:
        """Time forward passes for about `seconds`; before any request."""
        ...
