"""What drafters of this plugin share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import Drafter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from specserve.api import ForwardOutput, Verdict
    from specserve.api.batch import Request, ScheduledBatch
    from specserve_draft_models import DraftModelRuntime
    from specserve_eagle.card import AcceptanceWatch


class WatchedDrafter(Drafter):
    """Compares what is accepted with what its card promises."""

    name = "eagle"
    watch: AcceptanceWatch | None = None
    """Where the draft model has a card."""

    def judge(self, batch: ScheduledBatch, verdict: Verdict) -> None:
        """What became of earlier drafts."""
        if self.watch is not None and not self.watch.done:
            self.watch.observe(batch, verdict)


class DraftModelDrafter(WatchedDrafter):
    """Its layers follow the target, request by request. A subclass makes the runtime in `connect`, which start-up calls
    before any request."""

    runtime: DraftModelRuntime | None = None

    def observe_step(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict) -> None:
        assert self.runtime is not None
        if not self.runtime.goes_on(batch, output, verdict):
            self.propose(batch, output, verdict, [0] * len(batch.spans))

    def idle_steps(self) -> int:
        assert self.runtime is not None
        return self.runtime.idle_steps()

    def observe_idle(self, batch: ScheduledBatch, count: int, hidden: Sequence[Mapping[int, Tensor]]) -> None:
        assert self.runtime is not None
        self.runtime.add_idle(batch, count, hidden)

    def start(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.start(request)

    def stop(self, request: Request) -> None:
        assert self.runtime is not None
        self.runtime.stop(request)
