"""How deep to draft: a fixed depth, or as deep as another pass pays.

A step with drafts takes its verification, the passes so far and the target's own time. A further level pays where it
raises the product of the requests' expected speeds (proportional fairness; Kelly, 1997). How likely a further token is
right is learned (`Outlook`), what passes take is measured, and what a step of the target takes the planner knows.
"""

from __future__ import annotations

import time
from math import log1p
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specserve_eagle.estimates import MovingAverage, Outlook, Path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import DraftChains, TargetCosts, Verdict
    from specserve.api.batch import ScheduledBatch
    from specserve_eagle.growing import Growing

MAX_LEARNED = 8
"""Drafts of a step, about, from which rates are learned: those of large batches in turns."""
EXPLORE_INTERVAL = 32
"""Steps after which one level more is drafted than pays, so that rates and times of deeper levels stay known."""


class Depth(Protocol):
    """Asked after every level but the last possible one."""

    def begin(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        """A step begins: what became of the last drafts."""
        ...

    def ahead(self, drafts: Sequence[Growing]) -> list[int]:
        """How many levels of each draft, at least one, may be made before `deeper` is asked."""
        ...

    def ran(self, made: DraftChains) -> None:
        """They were made in one call."""
        ...

    def deeper(self, drafts: Sequence[Growing]) -> list[int]:
        """Which of these drafts are worth another pass over their newest level."""
        ...

    def end(self, drafts: Sequence[Growing]) -> None:
        """These are proposed."""
        ...


class FixedDepth:
    """Drafts grow until they are done."""

    def begin(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        pass

    def ahead(self, drafts: Sequence[Growing]) -> list[int]:
        return [draft.steps for draft in drafts]

    def ran(self, made: DraftChains) -> None:
        pass

    def deeper(self, drafts: Sequence[Growing]) -> list[int]:
        return list(range(len(drafts)))

    def end(self, drafts: Sequence[Growing]) -> None:
        pass


class Proposed(NamedTuple):
    """The likeliest path of a proposed draft."""

    path: Path
    tokens: tuple[int, ...]


class AutoDepth:
    """Goes on while another pass pays."""

    def __init__(self, costs: TargetCosts) -> None:
        self.costs = costs
        self.outlook = Outlook()
        self.proposed: dict[str, Proposed] = {}
        self.drafts: Sequence[Growing] = ()
        """Those that grow in this step."""
        self.paths: dict[str, Path] = {}
        """Of these drafts, by request id."""
        self.passes: dict[int, MovingAverage] = {}
        """By size class of a pass's rows."""
        self.num_requests = 1
        self.began = 0.0
        self.num_steps = 0
        self.explores = False
        self.num_ahead = 1
        """Levels that paid in the last steps: that many are made before it is looked at again."""
        self.num_made = 1
        """Levels that were made in this step before it was looked at."""
        self.pass_began: tuple[float, int] | None = None
        """When the pass that runs began, and its size class."""

    def begin(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        self.began = time.perf_counter()
        self.num_requests = max(len(batch.spans), 1)
        if not self.proposed:
            return
        self.num_steps += 1
        self.explores = self.num_steps % EXPLORE_INTERVAL == 0
        stride = 1 + len(batch.spans) // MAX_LEARNED
        for i in range(self.num_steps % stride, len(batch.spans), stride):
            proposed = self.proposed.get(batch.spans[i].request.id)
            if proposed is not None:
                self.outlook.learn(*proposed, verdict.spans[i].tokens)
        self.proposed = {}

    def ahead(self, drafts: Sequence[Growing]) -> list[int]:
        self.drafts, self.num_made = drafts, 1
        self.paths, self.pass_began = {}, None  # a pass of the step before may have failed
        return [min(self.num_ahead, draft.steps) for draft in drafts]

    def ran(self, made: DraftChains) -> None:
        self.num_made = 1 + made.num_passes
        if made.num_passes:
            self.took(made.seconds / made.num_passes, len(made.tokens).bit_length())

    def deeper(self, drafts: Sequence[Growing]) -> list[int]:
        if self.pass_began is not None:
            began, size = self.pass_began
            self.took(time.perf_counter() - began, size)
            self.pass_began = None
        worth = self.worth(drafts, drafts[0].depth)
        if not worth and self.explores:
            self.explores, worth = False, list(range(len(drafts)))
        elif worth:
            self.num_ahead = max(self.num_ahead, drafts[0].depth + 1)
        if worth:
            self.pass_began = time.perf_counter(), sum(drafts[i].num_rows for i in worth).bit_length()
        return worth

    def worth(self, drafts: Sequence[Growing], depth: int) -> list[int]:
        """Which of these drafts, all at least so deep, are worth a pass over their level of this depth: none where the
        pass does not pay for all of them together."""
        step, verifying = self.step_seconds(len(drafts))
        cost, gains = self.num_requests * verifying / step, {}
        for i, draft in enumerate(drafts):
            path = self.path_of(draft, depth)
            gain = log1p(self.outlook.next(path, depth) / path.expected[depth]) - cost
            if gain > 0.0:
                gains[i] = gain
        size = sum(drafts[i].num_rows for i in gains).bit_length()
        seconds = self.passes[size].value if size in self.passes else 0.0
        return list(gains) if sum(gains.values()) > self.num_requests * seconds / step else []

    def path_of(self, draft: Growing, depth: int) -> Path:
        """The draft's likeliest path as far as this depth."""
        path = self.paths.setdefault(draft.sequence.request.id, Path())
        for survival in draft.stated[len(path.keys) : depth]:
            self.outlook.extend(path, survival)
        return path

    def step_seconds(self, num_more: int) -> tuple[float, float]:
        """Of the step with what is drafted so far, and of the verification of each of `num_more` tokens more."""
        requests, drafted = self.num_requests, sum(draft.depth for draft in self.drafts)
        target = self.costs.seconds(requests + drafted, requests, drafted)
        more = self.costs.seconds(requests + drafted + num_more, requests, drafted + num_more) - target
        return target + time.perf_counter() - self.began, more / num_more

    def end(self, drafts: Sequence[Growing]) -> None:
        last = self.num_made - 1
        deepest = [draft for draft in drafts if draft.depth > last]
        if last and not (deepest and self.worth(deepest, last)):
            self.num_ahead = max(1, last - last // 4)
        self.proposed = {
            draft.sequence.request.id: Proposed(self.path_of(draft, draft.depth), draft.likeliest_path())
            for draft in drafts
        }
        self.explores, self.drafts = False, ()

    def took(self, seconds: float, size: int) -> None:
        """A pass of this size class."""
        self.passes.setdefault(size, MovingAverage()).add(seconds)


def choose_depth(costs: TargetCosts | None, *, is_auto: bool, is_planned: bool) -> Depth:
    """`is_planned`: whether limits bound drafts to the depth that pays already. costs: None where nobody knows them."""
    return AutoDepth(costs) if is_auto and not is_planned and costs is not None else FixedDepth()
