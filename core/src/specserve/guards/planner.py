"""A plugin's planner, made safe to call: where it raises or gives an invalid answer, the step decodes plainly.

Its answers are bounded too: a request's own limit and the engine's budget hold whatever it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.batch.drafts import ROOT, children_of, parents_of, sources_of
from specserve.faults import BadAnswerError
from specserve.guards.draft_checks import check_draft
from specserve.speculation.planning import most_useful

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.request import Request
    from specserve.faults import FaultLog
    from specserve.protocols import DraftPlanner
    from specserve.types import Draft, Verdict


class GuardedPlanner:
    """`most`: the widest draft that a step can hold."""

    def __init__(self, plugin: str, planner: DraftPlanner, log: FaultLog, *, most: int, vocab_size: int) -> None:
        self.plugin, self.planner, self.most, self.vocab_size = plugin, planner, most, vocab_size
        self.limits_part = log.part(plugin, "planner's limits")
        self.choose_part = log.part(plugin, "planner's choice")
        self.learn_part = log.part(plugin, "planner's learning")
        self.cost_part = log.part(plugin, "planner's learning of costs")

    def limits(self, requests: Sequence[Request]) -> list[int]:
        if not self.choose_part.enabled:
            return [0] * len(requests)
        return self.limits_part.call([0] * len(requests), self.checked_limits, requests)

    def checked_limits(self, requests: Sequence[Request]) -> list[int]:
        limits = list(self.planner.limits(list(requests)))
        if len(limits) != len(requests):
            raise BadAnswerError("gave another number of limits than of requests")
        if any(type(limit) is not int or limit < 0 for limit in limits):
            raise BadAnswerError("gave a limit that is no number of at least 0")
        return [min(limit, most_useful(r, self.most)) for r, limit in zip(requests, limits, strict=True)]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        plain: list[Draft | None] = [None] * len(requests)
        return self.choose_part.call(plain, self.checked_choice, requests, budget, base_rows)

    def checked_choice(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[Draft | None]:
        chosen = list(self.planner.choose(list(requests), budget, base_rows))
        if len(chosen) != len(requests):
            raise BadAnswerError("chose for another number of requests")
        return [
            # drafts that it passes on unchanged were checked before; only those that it made are checked again
            draft if draft is None or draft is r.draft else self.own_draft(draft, r.draft)
            for r, draft in zip(requests, chosen, strict=True)
        ]

    def own_draft(self, draft: Draft, proposed: Draft | None) -> Draft | None:
        valid = check_draft(draft, self.most, self.vocab_size)
        return valid and attribute(valid, proposed, self.plugin)

    def asked(self, seconds: float, num_asked: int) -> None:
        self.cost_part.call(None, self.tell_cost, seconds, num_asked)

    def tell_cost(self, seconds: float, num_asked: int) -> None:
        learn = getattr(self.planner, "asked", None)
        if callable(learn):
            learn(seconds, num_asked)

    def learn(self, batch: Batch, verdict: Verdict, seconds: float) -> None:
        self.learn_part.call(None, self.planner.learn, batch, verdict, seconds)


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
