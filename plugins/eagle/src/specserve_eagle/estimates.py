"""What `AutoDepth` learns: how long passes take, and how likely draft tokens are right."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE = 0.05
"""Of the moving averages of times; an outlier counts as twice the average."""
DECAY = 0.98
"""Weight of earlier trials, per trial."""
PRIOR_TRIALS, PRIOR_RATE = 4.0, 0.7
"""Before anything is known, a further token is expected to be right so often where those before it are."""
BUCKETS = 10


class MovingAverage:
    """Of seconds."""

    def __init__(self) -> None:
        self.value = 0.0

    def add(self, seconds: float) -> None:
        if self.value:
            self.value += RATE * (min(seconds, 2 * self.value) - self.value)
        else:
            self.value = seconds


class Rates:
    """How often something was so, by key: decayed counts."""

    def __init__(self) -> None:
        self.hits: dict[int, float] = {}
        self.trials: dict[int, float] = {}

    def add(self, key: int, hit: bool) -> None:
        self.hits[key] = DECAY * self.hits.get(key, 0.0) + hit
        self.trials[key] = DECAY * self.trials.get(key, 0.0) + 1.0

    def expected(self, key: int, prior: float) -> float:
        return (self.hits.get(key, 0.0) + PRIOR_TRIALS * prior) / (self.trials.get(key, 0.0) + PRIOR_TRIALS)


class Path:
    """The likeliest path of a draft: of each depth, 0 for the root."""

    def __init__(self) -> None:
        self.stated = [1.0]
        """Survival, as the draft model states it."""
        self.survival = [1.0]
        """The same, corrected."""
        self.expected = [1.0]
        """Tokens that a step with this much of the draft gives, about."""
        self.keys: list[tuple[int, int]] = []
        """Of the rates that each token counts for."""


class Outlook:
    """How likely a draft token is right where those before it are: by its depth and the draft model's probability, and
    for one that is not drafted yet by its depth and the survival of the path above it.

    What is right shows whether or not it was verified: it is compared with the tokens that the target gave.
    """

    def __init__(self) -> None:
        self.stated, self.further = Rates(), Rates()

    def extend(self, path: Path, stated: float) -> None:
        """By one token; `stated`: its survival."""
        depth, before, above = len(path.keys), path.stated[-1], path.survival[-1]
        conditional = min(stated / before, 1.0) if before > 0 else 0.0
        keys = key_of(depth, conditional), key_of(depth, above)
        survival = above * self.stated.expected(keys[0], conditional)
        path.stated.append(stated)
        path.survival.append(survival)
        path.expected.append(path.expected[-1] + survival)
        path.keys.append(keys)

    def next(self, path: Path, depth: int) -> float:
        """Survival of a token behind the first `depth` ones."""
        above = path.survival[depth]
        return above * self.further.expected(key_of(depth, above), PRIOR_RATE)

    def learn(self, path: Path, proposed: Sequence[int], given: Sequence[int]) -> None:
        """`given`: the tokens that the target gave where this path began."""
        for keys, token, right in zip(path.keys, proposed, given, strict=False):
            hit = token == right
            self.stated.add(keys[0], hit)
            self.further.add(keys[1], hit)
            if not hit:
                return


def key_of(depth: int, probability: float) -> int:
    return depth * BUCKETS + min(int(probability * BUCKETS), BUCKETS - 1)
