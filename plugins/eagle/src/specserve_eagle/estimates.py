"""What `AutoDepth` learns: how long passes and steps take, and what becomes of draft tokens."""

from __future__ import annotations

from typing import NamedTuple

RATE = 0.05
"""Of the moving averages of times; an outlier counts as twice the average."""
DECAY = 0.98
"""Weight of earlier trials, per trial."""
PRIOR_TRIALS, PRIOR_SHARE = 4.0, 0.7
"""A further token is first expected to be accepted with this share of the survival so far."""


class MovingAverage:
    """Of seconds."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, seconds: float) -> None:
        if self.value:
            self.value += RATE * (min(seconds, 2 * self.value) - self.value)
        else:
            self.value = seconds


class TargetStep:
    """Seconds of the target's step: without draft tokens, and more for each that it verifies for each request."""

    def __init__(self) -> None:
        self.plain = self.more = 0.0

    def observe(self, seconds: float, verified: float) -> None:
        """verified: draft tokens for each request. An outlier counts as twice the expectation at most."""
        if not self.plain:
            self.plain = seconds
            return
        expected = self.plain + self.more * verified
        error = min(seconds, 2 * expected) - expected
        rate = RATE / (1 + verified * verified)  # a normalised gradient step on both
        self.plain += rate * error
        self.more = max(0.0, self.more + rate * error * verified)


class Rate(NamedTuple):
    """What became of earlier draft tokens, decayed sums."""

    accepted: float = 0.0
    verified: float = 0.0
    drafted: float = 0.0

    def plus(self, *, accepted: bool, verified: bool) -> Rate:
        return Rate(DECAY * self.accepted + accepted, DECAY * self.verified + verified, DECAY * self.drafted + 1.0)

    def expected(self, survival: float) -> tuple[float, float]:
        """How often the next one is accepted, and verified; survival: of the path above it."""
        prior = PRIOR_TRIALS * PRIOR_SHARE * survival
        trials = self.drafted + PRIOR_TRIALS
        return (self.accepted + prior) / trials, (self.verified + PRIOR_TRIALS) / trials


NOTHING_SEEN = Rate()
