"""A drafter, made safe to call: its faults never reach a request.

A drafter that raises or breaks its contract costs that step's speculation: the fault is counted by drafter
and reason and logged once; after `fault_limit` faulty steps in a row the drafter is switched off. The guard also
measures what a draft costs and how many of its draft tokens are accepted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from specserve.batch.drafts import continued, shallow
from specserve.faults import FAULTS, full_summary, reason_of
from specserve.guards.draft_checks import DraftFault, check_draft
from specserve.protocols import DrafterNeeds
from specserve.speculation.hit_history import HitHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.metrics import EngineMetrics
    from specserve.protocols import ContinuingDrafter, Drafter
    from specserve.types import Draft, ForwardOutput, Verdict

logger = logging.getLogger(__name__)
ADAPTATION = 0.05
MIN_PROBE_INTERVAL, PROBE_SHARE = 16, 0.005
"""Steps without being asked after which a competing drafter is asked whatever the other drafts are expected to gain: at
least so many, and so many that asking takes no more than this share of the time."""
T = TypeVar("T")


def unchanged(draft: Draft) -> Draft:
    return draft


def cut_by_processors(draft: Draft, request: Request, vocab_size: int) -> Draft | None:
    """Without what the request's processors would never let through. A cut that fails costs the draft and no request:
    verification decides."""

    def checked_cut(cut: Callable[[Draft], Draft | None], whole: Draft) -> Draft | None:
        found = cut(whole)
        return None if found is None else check_draft(found, len(whole.tokens), vocab_size)

    left: Draft | None = draft
    for state, part in zip(request.processors, request.processor_parts, strict=True):
        cut = getattr(state, "cut", None)
        if cut is not None and left is not None:
            left = part.call(None, checked_cut, cut, left)
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
        self.hears_every_step = drafter.needs != DrafterNeeds()
        """A drafter that states needs reads the rows of every step; others are called only when a draft is wanted."""
        self.reads_logits = drafter.needs.logits
        self.is_certain = getattr(drafter, "is_certain", False) is True
        """Draft tokens with survival 1 that lead its drafts must come."""
        self.continues = hasattr(drafter, "propose_behind")
        """Whether it can go on from the end of tokens that are certain."""
        self.num_faults = self.faults_in_a_row = 0
        self.enabled = True
        self.seconds = 0.0
        """Of the latest call of `propose`."""
        self.pass_seconds = 0.0
        """Of each of its passes after the first, as far as the drafter tells."""
        self.seconds_per_draft = 0.0
        """Seconds to draft for one request, a moving average."""
        self.hits = HitHistory()
        self.steps_unasked = 0

    def start(self, request: Request) -> None:
        self.call(lambda: self.drafter.start(request))

    def stop(self, request: Request) -> None:
        self.hits.forget(request.id)
        self.call(lambda: self.drafter.stop(request))

    def propose(
        self,
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        certain: Sequence[Sequence[int]] = (),
    ) -> list[Draft | None]:
        """One valid draft or None per span. Where tokens are certain to come, for a drafter that `continues`: the draft
        begins with these, which its limit does not count."""
        wanted = sum(limit > 0 for limit in limits)
        if not wanted:
            self.hear(batch, output, verdict)
            return [None] * len(limits)
        self.steps_unasked, self.seconds, self.pass_seconds = 0, 0.0, 0.0
        if not self.enabled:
            return [None] * len(limits)
        began, recording = time.perf_counter(), self.metrics.graph_recording_seconds
        valid = self.valid_drafts(batch, output, verdict, limits, certain)
        recording = self.metrics.graph_recording_seconds - recording
        self.seconds = time.perf_counter() - began - recording
        self.pass_seconds = self.call(self.told_pass_seconds) or 0.0
        if batch.only_decodes:  # drafters may read prompts, whoever is asked
            seconds, before = self.seconds / wanted, self.seconds_per_draft
            self.seconds_per_draft = before + ADAPTATION * (seconds - before) if before else seconds
        return valid

    def told_pass_seconds(self) -> float:
        """0 where the drafter tells no time (see `specserve.protocols.PassTimer`)."""
        seconds = getattr(self.drafter, "pass_seconds", 0.0)
        return seconds if isinstance(seconds, float) and 0.0 < seconds < inf else 0.0

    def hear(self, batch: Batch, output: ForwardOutput, verdict: Verdict) -> None:
        """A step after which it is asked for nobody."""
        self.steps_unasked += 1
        self.seconds = 0.0
        if self.enabled and self.hears_every_step:
            began = time.perf_counter()
            self.valid_drafts(batch, output, verdict, [0] * len(batch.spans))
            self.seconds = time.perf_counter() - began

    def valid_drafts(
        self,
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        certain: Sequence[Sequence[int]] = (),
    ) -> list[Draft | None]:
        valid: list[Draft | None] = [None] * len(limits)
        faults = self.num_faults
        for i, draft in enumerate(self.call(partial(self.proposals, batch, output, verdict, limits, certain)) or ()):
            if draft is None:
                continue
            try:  # limits[i] cannot have changed: the drafter was given a copy
                ahead = certain[i] if certain else ()
                valid[i] = self.normal_form(batch.spans[i].request, draft, limits[i], ahead)
            except FAULTS as error:
                self.count(error)
        self.end_step(faults)
        return valid

    def proposals(
        self,
        batch: Batch,
        output: ForwardOutput,
        verdict: Verdict,
        limits: Sequence[int],
        certain: Sequence[Sequence[int]],
    ) -> list[Draft | None]:
        """What the drafter proposes, as a list of the right length."""
        if certain:
            drafter = cast("ContinuingDrafter", self.drafter)
            answer = drafter.propose_behind(batch, output, verdict, list(limits), [*certain])
        else:
            answer = self.drafter.propose(batch, output, verdict, list(limits))
        wanted = "propose returns a Draft or None for each of batch.spans"
        if not isinstance(answer, Iterable):
            raise DraftFault("no list of drafts", f"{type(answer).__name__}; {wanted}")
        proposed = list(answer)
        if len(proposed) != len(limits):
            raise DraftFault("wrong number of drafts", f"{len(proposed)} for {len(limits)} spans; {wanted}")
        return proposed

    def normal_form(self, request: Request, draft: Draft, limit: int, certain: Sequence[int]) -> Draft | None:
        """The draft in normal form, behind the tokens that are certain, and without draft tokens beyond the request's
        end; its last is the bonus.

        `source` is the drafter's name, whatever it states: faults, metrics and responses tell drafters apart by it.
        """
        valid = check_draft(draft, limit, self.vocab_size)
        if valid is not None and certain:
            valid = continued(certain, valid)
        if valid is not None:
            valid = shallow(valid, request.max_depth)
        if valid is not None:
            valid = self.cut(valid)
        if valid is not None and request.processors:
            valid = cut_by_processors(valid, request, self.vocab_size)
        if valid is not None and len(valid.tokens) <= len(certain):
            return None  # what is certain is somebody else's draft
        if valid is None or valid.source == self.name:
            return valid
        return msgspec.structs.replace(valid, source=self.name)

    def is_due(self, num_requests: int, step_seconds: float) -> bool:
        """Whether it was not asked for so many steps that its measurements are out of date."""
        spent = self.seconds_per_draft * num_requests
        return self.steps_unasked >= MIN_PROBE_INTERVAL and self.steps_unasked * step_seconds * PROBE_SHARE >= spent

    def call(self, action: Callable[[], T]) -> T | None:
        """What the action returns; None, and a counted fault, where it raises."""
        if not self.enabled:
            return None
        try:
            return action()
        except FAULTS as error:
            self.count(error)
        return None

    def count(self, error: BaseException) -> None:
        reason = reason_of(error)
        self.num_faults += 1
        self.metrics.drafter_faults[self.name, reason] += 1
        if self.metrics.drafter_faults[self.name, reason] == 1:
            what = full_summary(error, getattr(self.drafter, "propose", None))
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
