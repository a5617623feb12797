"""What became of draft tokens: of those of one request, and of the first ones of all requests like it.

The drafts of one request tell little at first, and chance is large in them: what its first drafts and those of others
gave is the prior. Owns these sums; what a token is worth is the caller's to say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from specserve.speculation.calibration import temperature_class

if TYPE_CHECKING:
    from specserve.batch.request import Request

DECAY, TYPICAL_DECAY = 0.95, 0.99
"""Weight of earlier drafts, per draft: of a request, and of all requests."""
FADING = 0.99
"""Weight of a request's drafts per step in which it is not asked: its text changes in the meantime."""
FIRST_DRAFTS = 32
"""So many of each request count for what is typical. Those that are drafted for longer are the better ones."""
ENOUGH = 24
"""So many drafts tell what is typical."""
PRIOR_WEIGHT, MOST_TYPICAL = 6.0, 1.5
"""Drafts of its own that weigh as much as what is typical; and how often asking may pay for itself by what is typical
alone: a few requests that repeat themselves save so much that the mean says little of the others."""


class Prices(NamedTuple):
    """Seconds."""

    accepted: float
    """That an accepted draft token saves: its share of a plain step."""
    verified: float
    """That a verified draft token takes."""

    def saved(self, accepted: float, verified: float) -> float:
        return accepted * self.accepted - verified * self.verified


@dataclass(slots=True)
class Sums:
    """Over the drafts that were asked for, decayed."""

    drafts: float = 0.0
    accepted: float = 0.0
    verified: float = 0.0

    def add_draft(self, decay: float) -> None:
        self.drafts = decay * self.drafts + 1.0
        self.accepted *= decay
        self.verified *= decay

    def add_tokens(self, accepted: int, verified: int) -> None:
        self.accepted += accepted
        self.verified += verified


class Typical:
    """Requests of one kind."""

    def __init__(self) -> None:
        self.sums = Sums()

    @property
    def is_known(self) -> bool:
        return self.sums.drafts >= ENOUGH

    def saved(self, prices: Prices) -> float:
        """Seconds per draft."""
        sums = self.sums
        return prices.saved(sums.accepted, sums.verified) / sums.drafts if sums.drafts else 0.0


class Outcomes:
    """Of one request."""

    def __init__(self, typical: Typical) -> None:
        self.typical = typical
        self.sums = Sums()
        self.num_asked = 0
        self.asked_at = 0
        """The last step in which it was asked."""

    def asked(self, step: int) -> None:
        fading = FADING ** max(step - self.asked_at - 1, 0) if self.num_asked else 1.0
        self.num_asked, self.asked_at = self.num_asked + 1, step
        self.sums.add_draft(DECAY * fading)
        if self.is_first:
            self.typical.sums.add_draft(TYPICAL_DECAY)

    @property
    def is_first(self) -> bool:
        """Whether its latest draft counts for what is typical."""
        return self.num_asked <= FIRST_DRAFTS

    def add(self, accepted: int, verified: int) -> None:
        """Of the latest draft."""
        self.sums.add_tokens(accepted, verified)
        if self.is_first:
            self.typical.sums.add_tokens(accepted, verified)

    def take_back(self) -> None:
        """There was no room to verify the latest draft."""
        self.sums.drafts = max(0.0, self.sums.drafts - 1.0)
        if self.is_first:
            self.typical.sums.drafts = max(0.0, self.typical.sums.drafts - 1.0)
        self.num_asked -= 1

    def expected(self, prices: Prices, step: int, cost: float) -> float:
        """Seconds that the next draft saves; `cost`: what it costs to ask for it."""
        weight = FADING ** (step - self.asked_at - 1)
        own = self.sums
        saved, drafts = weight * prices.saved(own.accepted, own.verified), weight * own.drafts
        if self.typical.is_known:
            saved += PRIOR_WEIGHT * min(self.typical.saved(prices), MOST_TYPICAL * cost)
            drafts += PRIOR_WEIGHT
        return saved / drafts if drafts else 0.0


class TypicalOutcomes:
    """Requests whose draft tokens are accepted alike: of one temperature, to the nearest quarter."""

    def __init__(self) -> None:
        self.by_temperature: dict[int, Typical] = {}

    def of(self, request: Request) -> Typical:
        return self.by_temperature.setdefault(temperature_class(request), Typical())
