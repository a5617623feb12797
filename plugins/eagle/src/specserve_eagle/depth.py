"""How deep to draft: a fixed depth, or as deep as another pass pays.

A pass pays where the tokens that it adds to the accepted ones save more time than it takes, and than their verification
takes. How often a further token is verified and accepted is learned by depth and by the draft's survival so far; what
passes and steps take is measured.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from specserve.batch.drafts import match
from specserve_eagle.estimates import NOTHING_SEEN, MovingAverage, Rate, TargetStep

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.types import Verdict
    from specserve_eagle.growing import Growing

BUCKETS = 10
EXPLORE_INTERVAL = 16
"""Steps after which one level more is drafted than pays, so that rates and times of deeper levels stay known."""


class Depth(Protocol):
    """Asked after every level but the last possible one."""

    def begin(self, batch: Batch, verdict: Verdict) -> None:
        """A step begins: what became of the last drafts."""
        ...

    def pays(self, drafts: Sequence[Growing]) -> bool:
        """Whether a pass over the newest level of these drafts is worth its time."""
        ...

    def end(self, drafts: Sequence[Growing]) -> None:
        """These are proposed."""
        ...


class FixedDepth:
    """Drafts grow until they are done."""

    def begin(self, batch: Batch, verdict: Verdict) -> None:
        pass

    def pays(self, drafts: Sequence[Growing]) -> bool:
        return True

    def end(self, drafts: Sequence[Growing]) -> None:
        pass


class Proposed(NamedTuple):
    """The likeliest path of a proposed draft."""

    tokens: tuple[int, ...]
    survival: tuple[float, ...]


class AutoDepth:
    """Goes on while another pass pays."""

    def __init__(self) -> None:
        self.proposed: dict[str, Proposed] = {}
        self.rates: dict[tuple[int, int], Rate] = {}
        """By depth and by bucket of the survival above."""
        self.target_step = TargetStep()
        self.passes: dict[int, MovingAverage] = {}
        """By size class of a pass's rows."""
        self.num_requests = 1
        self.num_steps = 0
        self.explores = False
        self.ended_at = 0.0
        self.pass_began: tuple[float, int] | None = None
        """When the pass that runs began, and its size class."""

    def begin(self, batch: Batch, verdict: Verdict) -> None:
        self.num_requests = max(len(batch.spans), 1)
        if not self.proposed:
            return
        if batch.only_decodes:
            verified = (batch.num_rows - len(batch.spans)) / self.num_requests
            self.target_step.observe(time.perf_counter() - self.ended_at, verified)
        self.num_steps += 1
        self.explores = self.num_steps % EXPLORE_INTERVAL == 0
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            proposed = self.proposed.pop(span.request.id, None)
            if proposed is not None and decided.tokens:
                num_verified = 0 if span.draft is None else match(span.draft, proposed.tokens)[1]
                self.learn(proposed, num_verified, decided.tokens[: len(decided.path)])
        self.proposed = {}

    def learn(self, proposed: Proposed, num_verified: int, accepted: Sequence[int]) -> None:
        """The first tokens of the path were verified. `accepted`: the draft tokens that were, whoever drafted them."""
        above, is_right = 1.0, True
        for depth, (token, survival) in enumerate(zip(proposed.tokens, proposed.survival, strict=True)):
            is_right = is_right and depth < len(accepted) and accepted[depth] == token
            key = depth, bucket(above)
            rate = self.rates.get(key, NOTHING_SEEN)
            self.rates[key] = rate.plus(accepted=is_right, verified=depth < num_verified)
            above = survival

    def pays(self, drafts: Sequence[Growing]) -> bool:
        self.end_pass()
        rows = sum(draft.num_rows for draft in drafts)
        size = rows.bit_length()
        seconds = self.passes.setdefault(size, MovingAverage()).value
        pays = not seconds or self.saving(drafts) > seconds
        if not pays and self.explores:
            self.explores, pays = False, True
        if pays:
            self.pass_began = time.perf_counter(), size
        return pays

    def saving(self, drafts: Sequence[Growing]) -> float:
        """Seconds that another token of each draft saves: steps, as far as it is accepted, without its verification."""
        accepted = verified = 0.0
        for draft in drafts:
            key = draft.depth, bucket(draft.best_survival)
            hits, rows = self.rates.get(key, NOTHING_SEEN).expected(draft.best_survival)
            accepted, verified = accepted + hits, verified + rows
        return (accepted * self.target_step.plain - verified * self.target_step.more) / self.num_requests

    def end(self, drafts: Sequence[Growing]) -> None:
        self.end_pass()
        self.explores = False
        self.proposed = {draft.sequence.request.id: Proposed(*draft.likeliest_path()) for draft in drafts}
        self.ended_at = time.perf_counter()

    def end_pass(self) -> None:
        if self.pass_began is not None:
            began, size = self.pass_began
            self.passes[size].add(time.perf_counter() - began)
            self.pass_began = None


def bucket(survival: float) -> int:
    return min(int(survival * BUCKETS), BUCKETS - 1)
