"""When a few plain steps are to show what one takes, where all others have draft tokens.

What drafts gain shows in comparison with plain steps, and a single plain step between drafts is slower than those of
plain decoding are: so several follow each other. They cost what drafts would have gained. The less that is, the more
often they come, and the more the decision depends on them.
"""

from __future__ import annotations

from specserve_adaptive.step_costs import size_class

STEPS = 4
"""That follow each other."""
FIRST, GROWTH = 16, 4
"""Steps with draft tokens before the first time, and factor from each time to the next."""
SHARE = 0.0025
"""Of the speed that these steps may cost, about."""
MOST_OFTEN, RAREST = 32, 512
"""Steps with draft tokens in between, where drafts gain nothing and where they gain much."""


class PlainSteps:
    """Counts by size class of the batch."""

    def __init__(self) -> None:
        self.left = 0
        """Of those that follow each other now."""
        self.drafted: dict[int, int] = {}
        """Steps with draft tokens since plain ones were seen."""
        self.times: dict[int, int] = {}

    def wanted(self, requests: int, gain: float) -> bool:
        """Whether the next step of `requests` requests is to be plain; call before every one. `gain`: logarithm of the
        factor that drafts make a request faster by."""
        size = size_class(requests)
        if not self.left and self.drafted.get(size, 0) >= self.interval(self.times.get(size, 0), gain):
            self.left, self.drafted[size] = STEPS, 0
            self.times[size] = self.times.get(size, 0) + 1
        if not self.left:
            return False
        self.left -= 1
        return True

    @staticmethod
    def interval(times: int, gain: float) -> float:
        affordable = min(max(STEPS * gain / SHARE, MOST_OFTEN), RAREST)
        return min(float(FIRST * GROWTH**times), affordable)

    def ran(self, requests: int, *, drafts: bool) -> None:
        """A step without prompts: with draft tokens, or a plain one like those of plain decoding."""
        size = size_class(requests)
        self.drafted[size] = self.drafted.get(size, 0) + 1 if drafts else 0
