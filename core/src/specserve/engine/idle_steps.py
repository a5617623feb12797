"""Steps in which nobody is drafted for, and of which planner and drafters are told afterwards.

Most steps of a server may be such. What is called between two passes of the model finds the processor's caches full of
weights: it takes several times what it takes when it is called at once for many steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.hidden_states import as_one

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import ScheduledBatch
    from specserve.guards.drafter import GuardedDrafter
    from specserve.metrics import EngineMetrics
    from specserve.protocols import DraftPlanner
    from specserve.types import ForwardOutput, Verdict


class IdleSteps:
    """They go on as long as the same requests run. `observing`: the drafters that learn of every step."""

    __slots__ = (
        *("asked", "batch", "hidden", "left", "metrics", "num_kept", "num_preemptions", "num_requests", "seconds"),
        "waiting",
    )

    def __init__(self, observing: Sequence[GuardedDrafter], metrics: EngineMetrics) -> None:
        self.asked: list[GuardedDrafter] = [*observing]
        """Drafters that are told after each step."""
        self.waiting: list[GuardedDrafter] = []
        """Those that are told later."""
        self.metrics = metrics
        self.left = self.num_requests = self.num_preemptions = 0
        self.batch: ScheduledBatch | None = None
        """The last that ran idle."""
        self.seconds: list[float] = []
        """Of each step that ran idle."""
        self.num_kept = 0
        """Steps that `waiting` were not told of."""
        self.hidden: list[Mapping[int, Tensor]] = []
        """The hidden states of these."""

    def begin(self, num_requests: int, planner: DraftPlanner) -> None:
        """After a step whose drafters were told of it."""
        self.left, self.num_requests = planner.idle_steps(), num_requests
        self.num_preemptions = self.metrics.num_preemptions
        if self.left:
            self.asked += self.waiting
            self.waiting = []
            self.find_waiting()

    def find_waiting(self) -> None:
        """Which of the drafters can be told of the steps from now on later."""
        for guard in [guard for guard in self.asked if guard.observes_idle]:
            steps = guard.idle_steps()
            if steps > 0:
                self.asked.remove(guard)
                self.waiting.append(guard)
                self.left = min(self.left, steps)

    def go_on(self, batch: ScheduledBatch) -> bool:
        """Whether this step is one of them. A request that begins has a prompt or changes the number of requests;
        `Drafting.stop` ends them where one ends."""
        if (
            self.left
            and batch.num_rows == len(batch.spans) == self.num_requests
            and self.metrics.num_preemptions == self.num_preemptions
        ):
            self.left -= 1
            return True
        self.left = 0
        return False

    def add(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict) -> None:
        self.batch = batch
        if self.waiting:
            self.num_kept += 1
            if output.hidden:
                self.hidden[-1:] = as_one([*self.hidden[-1:], output.hidden])
        for guard in self.asked:
            guard.observe(batch, output, verdict)
        if self.asked and not self.waiting:  # else the steps before this one are not its
            self.find_waiting()

    def end(self, planner: DraftPlanner) -> None:
        """Tell planner and drafters of the steps that they were not told of."""
        if self.batch is None:
            return
        planner.observe_idle(self.batch, self.seconds)
        if self.num_kept:
            for guard in self.waiting:
                guard.observe_idle(self.batch, self.num_kept, self.hidden)
        self.batch, self.num_kept = None, 0
        self.seconds, self.hidden = [], []
