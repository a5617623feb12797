"""A drafter, made safe to call: its faults never reach a request.

A drafter that raises or breaks its contract costs that step's speculation: the fault is counted by drafter
and reason and logged once; after `fault_limit` faulty steps in a row the drafter is switched off. The guard also
measures how long it takes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar

import msgspec

from specserve.batch.drafts import continued, shallow
from specserve.faults import FAULTS, full_summary, reason_of
from specserve.guards.draft_checks import DraftFault, check_draft
from specserve.protocols import Drafter, DrafterNeeds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.metrics import EngineMetrics
    from specserve.protocols import ProcessorState
    from specserve.types import Draft, ForwardOutput, Verdict

logger = logging.getLogger(__name__)
T = TypeVar("T")


def unchanged(draft: Draft) -> Draft:
    return draft


def cut_by_processors(draft: Draft, request: Request, vocab_size: int) -> Draft | None:
    """Without what the request's processors would never let through. A cut that fails costs the draft and no request:
    verification decides."""

    def checked_cut(state: ProcessorState, whole: Draft) -> Draft | None:
        found = state.cut(whole)
        return None if found is None else check_draft(found, len(whole.tokens), vocab_size)

    left: Draft | None = draft
    for state, part in zip(request.processors, request.processor_parts, strict=True):
        if left is not None and state.cuts_drafts:
            left = part.call(None, checked_cut, state, left)
    return left


class GuardedDrafter:
    """`cut` reduces a valid draft to what this engine can verify."""

    def __init__(
        self,
        drafter: Drafter,
        metrics: EngineMetrics,
        *,
        vocab_size: int,
        fault_limit: int,
        cut: Callable[[Draft], Draft | None] = unchanged,
    ) -> None:
        self.drafter, self.name, self.metrics, self.cut = drafter, drafter.name, metrics, cut
        self.vocab_size, self.fault_limit = vocab_size, fault_limit
        self.observes_every_step = drafter.needs != DrafterNeeds(target_rows=drafter.needs.target_rows)
        """A drafter that reads the rows of every step says so in its needs; others are called only when a draft is
        wanted."""
        self.has_observe_step = drafter.__class__.observe_step is not Drafter.observe_step
        """Else it is called as if it were to propose, after steps for which nobody wants a draft."""
        self.observes_idle = drafter.__class__.observe_idle is not Drafter.observe_idle
        """It may be told of idle steps afterwards."""
        self.reads_logits, self.computes_with_target = drafter.needs.logits, drafter.needs.target_rows > 0
        self.proposes_forced, self.continues_forced = drafter.proposes_forced, drafter.continues_forced
        self.num_faults = self.faults_in_a_row = 0
        self.enabled = True
        self.seconds = 0.0
        """The time of the latest call of `propose`."""
        self.pass_seconds = 0.0
        """The time of each of its passes after the first, as far as the drafter states it."""

    def start(self, request: Request) -> None:
        self.call(lambda: self.drafter.start(request))

    def stop(self, request: Request) -> None:
        self.call(lambda: self.drafter.stop(request))

    def propose(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        forced: Sequence[Sequence[int]] = (),
    ) -> list[Draft | None]:
        """One valid draft or None per span. `forced`: of each span the tokens that must come, for a drafter that
        `continues_forced`: its draft then begins with these, which its limit does not count."""
        if not any(limits):
            self.observe(batch, output, verdict)
            return [None] * len(limits)
        self.seconds, self.pass_seconds = 0.0, 0.0
        if not self.enabled:
            return [None] * len(limits)
        began, recording = time.perf_counter(), self.metrics.graph_recording_seconds
        valid = self.valid_drafts(batch, output, verdict, limits, forced)
        recording = self.metrics.graph_recording_seconds - recording
        self.seconds = time.perf_counter() - began - recording
        self.pass_seconds = self.call(self.stated_pass_seconds) or 0.0
        return valid

    def stated_pass_seconds(self) -> float:
        """0 where what the drafter states is no time."""
        seconds = self.drafter.pass_seconds
        return seconds if isinstance(seconds, float) and 0.0 < seconds < inf else 0.0

    def observe(self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict) -> None:
        """A step after which it proposes for nobody."""
        self.seconds = 0.0
        if not (self.enabled and self.observes_every_step):
            return
        began = time.perf_counter()
        if self.has_observe_step:
            self.tell("observe_step", batch, output, verdict)
        else:
            self.valid_drafts(batch, output, verdict, [0] * len(batch.spans))
        self.seconds = time.perf_counter() - began

    def tell(self, method: str, *arguments: object) -> None:
        """By a method of its own, which gives no drafts to check."""
        faults = self.num_faults
        try:
            getattr(self.drafter, method)(*arguments)
        except FAULTS as error:
            self.count(error, method)
        self.end_step(faults)

    def idle_steps(self) -> int:
        return self.call(self.stated_idle_steps) or 0

    def stated_idle_steps(self) -> int:
        steps = self.drafter.idle_steps()
        if type(steps) is not int or steps < 0:
            raise DraftFault("idle steps that are no number", f"{steps!r}; idle_steps returns an int of at least 0")
        return steps

    def observe_idle(self, batch: ScheduledBatch, count: int, hidden: Sequence[Mapping[int, Tensor]]) -> None:
        if self.enabled:
            self.tell("observe_idle", batch, count, hidden)

    def valid_drafts(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        forced: Sequence[Sequence[int]] = (),
    ) -> list[Draft | None]:
        valid: list[Draft | None] = [None] * len(limits)
        faults = self.num_faults
        for i, draft in enumerate(self.call(partial(self.proposals, batch, output, verdict, limits, forced)) or ()):
            if draft is None:
                continue
            try:  # limits[i] cannot have changed: the drafter was given a copy
                before = forced[i] if forced else ()
                valid[i] = self.normal_form(batch.spans[i].request, draft, limits[i], before)
            except FAULTS as error:
                self.count(error)
        self.end_step(faults)
        return valid

    def proposals(
        self,
        batch: ScheduledBatch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        forced: Sequence[Sequence[int]],
    ) -> list[Draft | None]:
        """What the drafter proposes, as a list of the right length."""
        if forced:
            answer = self.drafter.propose_after(batch, output, verdict, list(limits), [*forced])
        else:
            answer = self.drafter.propose(batch, output, verdict, list(limits))
        wanted = "propose returns a Draft or None for each of batch.spans"
        if not isinstance(answer, Iterable):
            raise DraftFault("no list of drafts", f"{type(answer).__name__}; {wanted}")
        proposed = list(answer)
        if len(proposed) != len(limits):
            raise DraftFault("wrong number of drafts", f"{len(proposed)} for {len(limits)} spans; {wanted}")
        return proposed

    def normal_form(self, request: Request, draft: Draft, limit: int, forced: Sequence[int]) -> Draft | None:
        """The draft in normal form, after the forced tokens, and without draft tokens beyond the request's end; its
        last is the bonus.

        `source` is the drafter's name, whatever it states: faults, metrics and responses distinguish drafters by it.
        """
        valid = check_draft(draft, limit, self.vocab_size)
        if valid is not None and forced:
            valid = continued(forced, valid)
        if valid is not None:
            valid = shallow(valid, request.max_depth)
        if valid is not None:
            valid = self.cut(valid)
        if valid is not None and request.processors:
            valid = cut_by_processors(valid, request, self.vocab_size)
        if valid is not None and len(valid.tokens) <= len(forced):
            return None  # what is forced is somebody else's draft
        if valid is None or valid.source == self.name:
            return valid
        return msgspec.structs.replace(valid, source=self.name)

    def call(self, action: Callable[[], T]) -> T | None:
        """What the action returns; None, and a counted fault, where it raises."""
        if not self.enabled:
            return None
        try:
            return action()
        except FAULTS as error:
            self.count(error)
        return None

    def count(self, error: BaseException, method: str = "propose") -> None:
        reason = reason_of(error)
        self.num_faults += 1
        self.metrics.drafter_faults[self.name, reason] += 1
        if self.metrics.drafter_faults[self.name, reason] == 1:
            what = full_summary(error, getattr(self.drafter, method, None))
            logger.warning("drafter %s: %s; the requests go on with plain decoding", self.name, what, exc_info=error)

    def end_step(self, faults_before: int) -> None:
        """A step counts as faulty once, however many of its drafts were."""
        if self.num_faults == faults_before:
            self.faults_in_a_row = 0
            return
        self.faults_in_a_row += 1
        if self.faults_in_a_row >= self.fault_limit:
            self.enabled = False
            self.metrics.drafters_disabled.add(self.name)
            logger.error("drafter %s is switched off after %d faulty steps in a row", self.name, self.faults_in_a_row)
