"""Asks the drafter after each step, checks what it says, and keeps its faults away from requests.

A drafter that raises or breaks its contract costs that step's speculation: the fault is counted by drafter
and reason and logged once; after `fault_limit` faulty steps in a row the drafter is switched off.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from specserve.trees import ROOT, keep, parents_of, shallow
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch import Batch
    from specserve.metrics import EngineMetrics
    from specserve.protocols import Drafter, DraftPlanner
    from specserve.request import Request
    from specserve.types import ForwardOutput, Verdict

logger = logging.getLogger(__name__)


class DraftFault(Exception):
    """The drafter broke its contract; the message is a short reason that labels a metric."""


class NoDraft:
    """Stands where no drafter is enabled: plain decoding."""

    def start(self, request: Request) -> None:
        pass

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict) -> None:
        pass

    def stop(self, request: Request) -> None:
        pass


class Drafting:
    """One drafter behind its guard. Puts accepted-as-valid drafts on the requests for the next step."""

    def __init__(
        self, drafter: Drafter, planner: DraftPlanner, metrics: EngineMetrics, *, vocab_size: int, fault_limit: int
    ) -> None:
        self.drafter, self.planner, self.metrics = drafter, planner, metrics
        self.vocab_size, self.fault_limit = vocab_size, fault_limit
        self.faults_in_a_row = 0
        self.enabled = True

    def start(self, request: Request) -> None:
        self.guarded(lambda: self.drafter.start(request))

    def stop(self, request: Request) -> None:
        self.guarded(lambda: self.drafter.stop(request))

    def draft(self, batch: Batch, output: ForwardOutput, verdict: Verdict) -> None:
        if not self.enabled:
            return
        live = [i for i, span in enumerate(verdict.spans) if span.tokens and span.finish_reason is None]
        limits = [0] * len(batch.spans)
        planned = self.planner.limits([batch.spans[i].request for i in live])
        for i, limit in zip(live, planned, strict=True):
            limits[i] = limit
        if not any(limits):
            return
        faults = self.metrics.drafter_faults.total()
        self.guarded(lambda: self.place(batch, self.drafter.propose(batch, output, verdict, limits), limits))
        if self.metrics.drafter_faults.total() == faults:
            self.faults_in_a_row = 0

    def place(self, batch: Batch, drafts: Sequence[Draft | None], limits: Sequence[int]) -> None:
        if len(drafts) != len(limits):
            raise DraftFault("wrong number of drafts")
        for span, draft, limit in zip(batch.spans, drafts, limits, strict=True):
            if draft is not None:
                self.guarded(partial(self.place_one, span.request, draft, limit))

    def place_one(self, request: Request, draft: Draft, limit: int) -> None:
        """Put the draft in normal form on its request, less what lies beyond the request's end: the last
        token needs no guess, it comes as a bonus."""
        checked = check_draft(draft, limit, self.vocab_size)
        if checked is not None:
            checked = shallow(checked, request.max_len - len(request.tokens) - 1)
        if checked is not None:
            checked = msgspec.structs.replace(checked, source=draft.source or self.drafter.name)
        request.draft = checked

    def guarded(self, action: Callable[[], None]) -> None:
        if not self.enabled:
            return
        try:
            action()
        except DraftFault as fault:
            self.count(str(fault), None)
        except Exception as error:
            self.count(f"raised {type(error).__name__}", error)

    def count(self, reason: str, error: Exception | None) -> None:
        name = self.drafter.name
        self.metrics.drafter_faults[name, reason] += 1
        if self.metrics.drafter_faults[name, reason] == 1:
            logger.warning("drafter %s: %s; the requests go on with plain decoding", name, reason, exc_info=error)
        self.faults_in_a_row += 1
        if self.faults_in_a_row >= self.fault_limit:
            self.enabled = False
            self.metrics.drafters_disabled.add(name)
            logger.error("drafter %s is switched off after %d faults in a row", name, self.faults_in_a_row)


def check_draft(draft: Draft, limit: int, vocab_size: int) -> Draft | None:
    """Validate and normalise: tuples of plain numbers, duplicate siblings merged, no child more likely to
    survive than its parent. None for an empty draft."""
    if not isinstance(draft, Draft):
        raise DraftFault("not a Draft")
    tokens = numbers(draft.tokens, "tokens")
    size = len(tokens)
    if size > limit:
        raise DraftFault("more tokens than the limit")
    if not all(isinstance(t, int) and 0 <= t < vocab_size for t in tokens):
        raise DraftFault("token out of range")
    parents = None if draft.parents is None else numbers(draft.parents, "parents")
    if parents is not None:
        if len(parents) != size:
            raise DraftFault("parents of another length than tokens")
        if not all(isinstance(p, int) and ROOT <= p < node for node, p in enumerate(parents)):
            raise DraftFault("a parent does not precede its child")
    survival = None if draft.survival is None else numbers(draft.survival, "survival")
    if survival is not None:
        if len(survival) != size:
            raise DraftFault("survival of another length than tokens")
        if not all(isinstance(s, (int, float)) and not math.isnan(s) and 0.0 <= s <= 1.0 for s in survival):
            raise DraftFault("survival outside 0..1")
    clean = Draft(tokens=tokens, parents=parents, survival=survival, source=draft.source)
    return merge_siblings(monotone(clean))


def numbers(values: object, name: str) -> tuple[int, ...]:
    """A tuple of Python numbers from a sequence or a one-dimensional tensor."""
    listed = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(listed, (tuple, list)):
        raise DraftFault(f"{name} is not one-dimensional")
    return tuple(listed)


def monotone(draft: Draft) -> Draft:
    """Lower each survival to its parent's, so that a prefix of the sorted nodes holds every parent."""
    if draft.survival is None:
        return draft
    survival: list[float] = []
    for parent, own in zip(parents_of(draft), draft.survival, strict=True):
        survival.append(own if parent == ROOT else min(own, survival[parent]))
    return msgspec.structs.replace(draft, survival=tuple(survival))


def merge_siblings(draft: Draft) -> Draft | None:
    """Siblings with one token become one node, which takes over the children of both."""
    if draft.parents is None:
        return draft if draft.tokens else None
    first: dict[tuple[int, int], int] = {}
    becomes: dict[int, int] = {ROOT: ROOT}
    parents = list(draft.parents)
    for node, token in enumerate(draft.tokens):
        parents[node] = becomes[parents[node]]
        becomes[node] = first.setdefault((parents[node], token), node)
    merged = msgspec.structs.replace(draft, parents=tuple(parents))
    return keep(merged, set(first.values()))
