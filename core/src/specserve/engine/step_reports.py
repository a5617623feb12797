"""Why a step verified what it did of each request's draft, in words; and a step as requests that ask are told of it.

Changes nothing. In steps of which nobody asks, nothing is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.batch.drafts import ROOT, parents_of
from specserve.types import SpeculationStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.span import ScheduledSpan
    from specserve.engine.drafting import Drafting, NoDraft
    from specserve.protocols import DraftPlanner
    from specserve.types import DraftStop, RequestOutput, SpanVerdict, Verdict


class Why(NamedTuple):
    """`by_planner`: the planner's own word for it may say more."""

    text: str
    by_planner: bool = False


def why_not_more(span: ScheduledSpan, drafting: Drafting | NoDraft) -> Why | None:
    """Why fewer draft tokens were verified than could have been; None where all that were proposed were. Ask while
    `drafting.wanted` is of this step: before drafters propose for the next one."""
    speculation, end = span.request.speculation, span.start + span.known
    num_proposed = 0 if span.proposed is None else len(span.proposed.tokens)
    if span.drafted:
        fewer = span.drafted < num_proposed
        return Why(f"{span.drafted} of {num_proposed} proposed draft tokens were verified") if fewer else None
    if num_proposed:
        return Why(f"none of {num_proposed} proposed draft tokens was verified", by_planner=True)
    if end <= span.prompt_len:
        return Why("the step computed the prompt")
    if span.known > 1:
        return Why("the step computed earlier tokens again")
    if not drafting.guards:
        return Why("no drafter is enabled")
    if not speculation.enabled:
        return Why("the request switches speculation off")
    if speculation.max_draft_tokens == 0:
        return Why("the request allows no draft tokens")
    if end + 1 >= span.request.max_len:
        return Why("the request needs one token more at most")
    allowed = [guard for guard in drafting.guards if speculation.allows(guard.name)]
    drafters = [guard.name for guard in allowed if guard.enabled]
    if not drafters:
        whose = "" if speculation.drafters is None else " that the request allows"
        return Why(f"every drafter{whose} is switched off after faults")
    if drafting.wanted.get(span.request_id, 0):
        return Why(f"no draft came from {', '.join(drafters)}")
    return Why("the planner wanted no draft", by_planner=True)


def why_stopped(span: ScheduledSpan, decided: SpanVerdict) -> DraftStop:
    if span.draft is None:
        return "no_draft"
    if len(decided.tokens) == len(decided.path):
        return "finished"
    last = decided.path[-1] if decided.path else ROOT
    return "rejected" if last in parents_of(span.draft) else "draft_ended"


class NoReports:
    """Nobody asks."""

    def note_words(self) -> None:
        """Call when all is drafted, before the planner learns from the step."""

    def add_to(self, outputs: list[RequestOutput], seconds: float) -> list[RequestOutput]:
        """The outputs of the step, which took `seconds`, with its reports. Call after the planner learned."""
        return outputs


NO_REPORTS = NoReports()


class StepReports(NoReports):
    """Of one step; made before it is committed."""

    def __init__(
        self, batch: ScheduledBatch, verdict: Verdict, drafting: Drafting | NoDraft, planner: DraftPlanner
    ) -> None:
        self.planner = planner
        self.told = {
            span.request_id: (span, decided, why_not_more(span, drafting))
            for span, decided in zip(batch.spans, verdict.spans, strict=True)
            if span.request.speculation.return_steps and decided.tokens
        }
        self.words: dict[str, Mapping[str, int]] = {}
        """The planner's counts of its words, by request."""

    def note_words(self) -> None:
        self.words = {id: self.words_of(id) for id, (_, _, why) in self.told.items() if why and why.by_planner}

    def words_of(self, request_id: str) -> Mapping[str, int]:
        """Empty for a request that has ended."""
        stats = self.planner.request_stats(request_id)
        return {} if stats is None else stats.steps

    def add_to(self, outputs: list[RequestOutput], seconds: float) -> list[RequestOutput]:
        return [
            msgspec.structs.replace(output, steps=(self.step(output.request_id, seconds),))
            if output.request_id in self.told
            else output
            for output in outputs
        ]

    def step(self, request_id: str, seconds: float) -> SpeculationStep:
        span, decided, why = self.told[request_id]
        reason = None if why is None else why.text + self.new_word(request_id)
        stopped = why_stopped(span, decided)
        return SpeculationStep(len(decided.tokens), span.draft, decided.path, stopped, reason, seconds)

    def new_word(self, request_id: str) -> str:
        """What the planner counted since `note_words`."""
        if request_id not in self.words:
            return ""
        before, after = self.words[request_id], self.words_of(request_id)
        return "".join(f": {word}" for word, count in after.items() if count > before.get(word, 0))


def reports_of(
    batch: ScheduledBatch, verdict: Verdict, drafting: Drafting | NoDraft, planner: DraftPlanner
) -> NoReports:
    return StepReports(batch, verdict, drafting, planner) if drafting.num_followers else NO_REPORTS
