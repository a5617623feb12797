"""Asks the drafters after each step and gives each request its draft for the next.

Several drafters compete (see `specserve.engine.competing`). Guards keep faults away from the requests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

from specserve.batch.admitted import assign
from specserve.engine.competing import Competition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.engine.proposals import Proposal
    from specserve.guards.drafter import GuardedDrafter
    from specserve.protocols import DraftPlanner, PausingPlanner, SurvivalEstimates, TargetCosts
    from specserve.types import ForwardOutput, Verdict


def turn(guard: GuardedDrafter) -> tuple[bool, bool, float]:
    """The cheapest first, after those that know what must come and all that read the logits: the passes of another may
    overwrite these."""
    return not guard.is_certain, not guard.reads_logits, guard.seconds_per_draft


class NoDraft:
    """No drafter is enabled: plain decoding."""

    def start(self, request: Request) -> None:
        pass

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        pass

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        pass

    def stop(self, request: Request) -> None:
        pass


class Pause:
    """Steps in which nobody is to be asked and the planner need not be called, as long as the same requests run."""

    __slots__ = ("batch", "left", "num_requests", "seconds")

    def __init__(self) -> None:
        self.left = self.num_requests = 0
        self.batch: Batch | None = None
        """The last that ran without the planner."""
        self.seconds: list[float] = []
        """Of each that did."""

    def begin(self, num_requests: int, steps: int) -> None:
        self.left, self.num_requests = steps, num_requests

    def goes_on(self, batch: Batch) -> bool:
        """A request that begins has a prompt or changes their number; `Drafting.stop` ends the pause where one ends."""
        if self.left and batch.num_rows == len(batch.spans) == self.num_requests:
            self.left -= 1
            self.batch = batch
            return True
        self.left = 0
        return False

    def end(self, planner: DraftPlanner) -> None:
        """Tell the planner of the steps that ran without it."""
        if self.batch is not None:
            cast("PausingPlanner", planner).paused(self.batch, self.seconds)
        self.batch, self.seconds = None, []


class Drafting:
    """One or several guarded drafters. `calibration`: where the planner shares it, it learns there of the drafts that
    it is given. `costs`: of the target's steps; None where they are not known."""

    def __init__(
        self,
        guards: Sequence[GuardedDrafter],
        planner: DraftPlanner,
        calibration: SurvivalEstimates,
        costs: TargetCosts | None = None,
    ) -> None:
        self.guards = sorted(guards, key=lambda guard: not guard.reads_logits)
        self.planner = planner
        learns = getattr(planner, "calibration", None) is calibration
        self.competition = Competition(calibration, costs, scores_all=not learns)
        self.attentive = [guard for guard in self.guards if guard.hears_every_step]
        self.pause = Pause()

    def start(self, request: Request) -> None:
        for guard in self.guards:
            guard.start(request)

    def stop(self, request: Request) -> None:
        self.pause.left = 0
        self.competition.stop(request)
        for guard in self.guards:
            guard.stop(request)

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict, seconds: float) -> None:
        if self.pause.goes_on(batch):
            for guard in self.attentive:
                guard.hear(batch, output, verdict)
            return
        self.pause.end(self.planner)
        # not by the verdict alone: committing has ended a request whose processor failed
        requests = [span.request for span in batch.spans]
        live = [i for i, span in enumerate(verdict.spans) if span.tokens and requests[i].finish_reason is None]
        began, recording = time.perf_counter(), self.recording_seconds
        planned = self.planner.limits([requests[i] for i in live])
        is_plain = batch.num_rows == len(batch.spans)
        if is_plain and not any(planned) and not self.proposals:  # every request backs off
            for guard in self.guards:
                guard.hear(batch, output, verdict)
            self.pause.begin(len(live), getattr(self.planner, "pause", 0))
            return
        limits = [0] * len(batch.spans)
        for i, limit in zip(live, planned, strict=True):
            limits[i] = limit
        guards = self.guards
        if len(guards) == 1:
            best = guards[0].propose(batch, output, verdict, limits)
        else:
            self.competition.observe(batch, verdict, seconds)
            guards = sorted((guard for guard in guards if guard.enabled), key=turn)
            best = self.competition.propose(guards, batch, output, verdict, limits)
        for i in live:
            assign(requests[i], "draft", best[i])
        tell: Callable[[float, int, float], None] | None = getattr(self.planner, "asked", None)
        if tell is not None and any(planned) and batch.only_decodes:  # a draft model may read prompts
            # the cheapest is asked wherever any is; the others only where they pay for themselves
            seconds = time.perf_counter() - began - sum(guard.seconds for guard in guards[1:])
            seconds -= self.recording_seconds - recording
            pass_seconds = guards[0].pass_seconds if len(self.guards) == 1 else 0.0
            tell(seconds, sum(limit > 0 for limit in planned), pass_seconds)

    @property
    def proposals(self) -> Mapping[str, Sequence[Proposal]]:
        """Of competing drafters, by request id, that are not scored yet."""
        return self.competition.proposals

    @property
    def recording_seconds(self) -> float:
        """Spent on recording graphs so far."""
        return self.guards[0].metrics.graph_recording_seconds

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        """Let the planner learn from the step, unless it pauses."""
        if self.pause.batch is None:
            self.planner.learn(batch, verdict, seconds)
        else:
            self.pause.seconds.append(seconds)
