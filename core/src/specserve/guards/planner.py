"""A plugin's planner, made safe to call: where it raises or gives an invalid answer, the step decodes plainly.

Its answers are bounded too: a request's own limit and the engine's budget hold whatever it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.drafts import ROOT, children_of, first, parents_of, shallow, sources_of
from specserve.faults import BadAnswerError
from specserve.guards.composer import GuardedComposer
from specserve.guards.costs import GuardedCosts
from specserve.guards.draft_checks import check_draft
from specserve.protocols import DraftPlanner
from specserve.speculation.fixed_width import draft_limit
from specserve.types import Draft, PlannerStats

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.faults import FaultLog
    from specserve.types import Verdict
    from specserve_checks.json_types import JsonObject


class GuardedPlanner(DraftPlanner):
    """`max_draft_tokens`: of the widest draft that a step can hold; `cut` reduces a valid draft to what this engine can
    verify."""

    def __init__(
        self,
        plugin: str,
        planner: DraftPlanner,
        log: FaultLog,
        *,
        max_draft_tokens: int,
        vocab_size: int,
        cut: Callable[[Draft], Draft | None],
    ) -> None:
        self.plugin, self.planner, self.vocab_size, self.cut = plugin, planner, vocab_size, cut
        self.max_draft_tokens = max_draft_tokens
        self.bounds_depth = planner.bounds_depth
        self.costs = None if planner.costs is None else GuardedCosts(plugin, planner.costs, log)
        composer = planner.composer
        if composer is not None:
            self.composer = GuardedComposer(plugin, composer, log, vocab_size=vocab_size, cut=cut)
        self.limits_part = log.part(plugin, "planner's limits", code=planner.limits)
        self.choose_part = log.part(plugin, "planner's choice", code=planner.choose)
        self.learn_part = log.part(plugin, "planner's learning", code=planner.learn)
        self.stats_part = log.part(plugin, "planner's stats", needed=True)
        self.cost_part = log.part(plugin, "planner's learning of costs")

    def idle_steps(self) -> int:
        return self.limits_part.call(0, self.checked_idle_steps)

    def checked_idle_steps(self) -> int:
        steps = self.planner.idle_steps()
        if type(steps) is not int or steps < 0:
            raise BadAnswerError("gave idle steps that are no number of at least 0")
        return steps

    def observe_idle(self, batch: ScheduledBatch, seconds: Sequence[float]) -> None:
        self.limits_part.call(None, self.planner.observe_idle, batch, seconds)

    def limits(self, requests: Sequence[Request]) -> list[int]:
        if not self.choose_part.enabled:
            return [0] * len(requests)
        return self.limits_part.call([0] * len(requests), self.checked_limits, requests)

    def checked_limits(self, requests: Sequence[Request]) -> list[int]:
        limits = list(self.planner.limits(list(requests)))
        if len(limits) != len(requests):
            raise BadAnswerError("gave another number of limits than of requests")
        if limits and (set(map(type, limits)) != {int} or min(limits) < 0):
            raise BadAnswerError("gave a limit that is no number of at least 0")
        if not any(limits):
            return limits
        return [
            limit and min(limit, draft_limit(request, self.max_draft_tokens))
            for request, limit in zip(requests, limits, strict=True)
        ]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> Sequence[Draft | int | None]:
        plain: list[Draft | int | None] = [None] * len(requests)
        return self.choose_part.call(plain, self.checked_choice, requests, budget, base_rows)

    def checked_choice(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | int | None]:
        chosen = list(self.planner.choose(list(requests), budget, base_rows))
        if len(chosen) != len(requests):
            raise BadAnswerError("chose for another number of requests")
        return [
            # what was proposed was checked before; only what the planner made is checked again
            choice if choice is None or choice is r.draft else self.checked(choice, r)
            for r, choice in zip(requests, chosen, strict=True)
        ]

    def checked(self, choice: Draft | int, request: Request) -> Draft | int | None:
        if isinstance(choice, int):
            proposed = 0 if request.draft is None else len(request.draft.tokens)
            if not 0 <= choice <= proposed:
                raise BadAnswerError("chose a number of draft tokens that were not proposed")
            return choice
        return choice if begins(request.draft, choice) else self.own_draft(choice, request)

    def own_draft(self, draft: Draft, request: Request) -> Draft | None:
        """Without draft tokens beyond the request's end or its own limit, whatever the drafter proposed."""
        valid = check_draft(draft, self.max_draft_tokens, self.vocab_size)
        if valid is not None:
            valid = shallow(valid, request.max_depth)
        if valid is not None:
            valid = self.cut(valid)
        if valid is not None:
            valid = first(valid, draft_limit(request, self.max_draft_tokens))
        return valid and attribute(valid, request.draft, self.plugin)

    def observe_drafting(self, seconds: float, num_requests: int, pass_seconds: float) -> None:
        self.cost_part.call(None, self.planner.observe_drafting, seconds, num_requests, pass_seconds)

    def request_stats(self, request_id: str) -> PlannerStats | None:
        return self.stats_part.call(None, self.checked_stats, request_id)

    def checked_stats(self, request_id: str) -> PlannerStats | None:
        stats = self.planner.request_stats(request_id)
        return None if stats is None else msgspec.convert(msgspec.to_builtins(stats), PlannerStats)

    def describe(self) -> JsonObject | None:
        described: JsonObject | None = self.stats_part.call(None, self.plain_description)
        return described

    def plain_description(self) -> JsonObject | None:
        described: JsonObject | None = msgspec.to_builtins(self.planner.describe())
        return described

    def learn(self, batch: ScheduledBatch, verdict: Verdict, seconds: float) -> None:
        self.learn_part.call(None, self.planner.learn, batch, verdict, seconds)


def begins(proposed: Draft | None, draft: object) -> bool:
    """Whether the draft is the beginning of the proposed one."""
    return isinstance(draft, Draft) and proposed is not None and draft == first(proposed, len(draft.tokens))


def attribute(draft: Draft, proposed: Draft | None, maker: str) -> Draft:
    """The draft with the drafter of each node: as in `proposed`, or `maker` where that has no such node."""
    known = {} if proposed is None else children_of(proposed)
    drafters = () if proposed is None else sources_of(proposed)
    counterparts: dict[int, int | None] = {ROOT: ROOT}
    sources: list[str] = []
    for node, (parent, token) in enumerate(zip(parents_of(draft), draft.tokens, strict=True)):
        above = counterparts[parent]
        same = None if above is None else known.get(above, {}).get(token)
        counterparts[node] = same
        sources.append(maker if same is None else drafters[same])
    names = tuple(dict.fromkeys(sources))
    return msgspec.structs.replace(draft, source="+".join(names), sources=tuple(sources) if len(names) > 1 else None)
