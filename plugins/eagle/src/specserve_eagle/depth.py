"""How deep to draft: a fixed depth, or as deep as another pass pays.

A pass pays where the tokens that it adds to the accepted ones save more time than it takes. How often a further token
is verified and accepted is learned by depth and by the draft's survival so far; what passes and steps take is measured.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.types import Verdict
    from specserve_eagle.growing import Growing

RATE = 0.05
"""Of the moving averages of times; an outlier counts as twice the average."""
DECAY = 0.98
"""Weight of earlier trials, per trial."""
PRIOR_TRIALS, PRIOR_SHARE = 4.0, 0.7
"""A further token is first expected to be accepted with this share of the survival so far."""
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


class MovingAverage:
    """Of seconds."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, seconds: float) -> None:
        if self.value:
            self.value += RATE * (min(seconds, 2 * self.value) - self.value)
        else:
            self.value = seconds


class AutoDepth:
    """Goes on while another pass pays."""

    def __init__(self) -> None:
        self.proposed: dict[str, Proposed] = {}
        self.rates: dict[tuple[int, int], tuple[float, float]] = {}
        """(depth, bucket of the survival above it) -> decayed hits and trials of a token at that depth."""
        self.target_step = MovingAverage()
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
            self.target_step.add(time.perf_counter() - self.ended_at)
        self.num_steps += 1
        self.explores = self.num_steps % EXPLORE_INTERVAL == 0
        for span, decided in zip(batch.spans, verdict.spans, strict=True):
            proposed = self.proposed.pop(span.request.id, None)
            if proposed is not None and decided.tokens:
                self.learn(proposed, decided.tokens[: len(decided.path)])
        self.proposed = {}

    def learn(self, proposed: Proposed, accepted: Sequence[int]) -> None:
        """`accepted`: the draft tokens that were accepted, whoever drafted them."""
        above, is_right = 1.0, True
        for depth, (token, survival) in enumerate(zip(proposed.tokens, proposed.survival, strict=True)):
            is_right = is_right and depth < len(accepted) and accepted[depth] == token
            key = depth, bucket(above)
            hits, trials = self.rates.get(key, (0.0, 0.0))
            self.rates[key] = DECAY * hits + is_right, DECAY * trials + 1.0
            above = survival

    def pays(self, drafts: Sequence[Growing]) -> bool:
        self.end_pass()
        rows = sum(draft.num_rows for draft in drafts)
        size = rows.bit_length()
        seconds = self.passes.setdefault(size, MovingAverage()).value
        gain = sum(self.expected_hit(draft.depth, draft.best_survival) for draft in drafts)
        pays = not seconds or gain * self.target_step.value / self.num_requests > seconds
        if not pays and self.explores:
            self.explores, pays = False, True
        if pays:
            self.pass_began = time.perf_counter(), size
        return pays

    def expected_hit(self, depth: int, survival: float) -> float:
        """How often a token at this depth, behind a path that survives so often, is verified and accepted."""
        hits, trials = self.rates.get((depth, bucket(survival)), (0.0, 0.0))
        return (hits + PRIOR_TRIALS * PRIOR_SHARE * survival) / (trials + PRIOR_TRIALS)

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
