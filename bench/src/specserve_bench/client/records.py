"""What one request was measured to be. Seconds everywhere. Knows nothing of HTTP."""

from __future__ import annotations

from typing import Literal

import msgspec


class Failure(msgspec.Struct, frozen=True):
    """Why a request did not get its whole answer."""

    kind: str
    """The same for all requests that failed in the same way: `connection`, `timeout`, `status 429`, ..."""
    message: str


class DraftCounts(msgspec.Struct, frozen=True):
    """Draft tokens that were verified, and those of them that were accepted."""

    drafted: int = 0
    accepted: int = 0

    def __add__(self, other: DraftCounts) -> DraftCounts:
        return DraftCounts(self.drafted + other.drafted, self.accepted + other.accepted)

    def __sub__(self, other: DraftCounts) -> DraftCounts:
        return DraftCounts(self.drafted - other.drafted, self.accepted - other.accepted)


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request, from its sending on."""

    number: int
    kind: str
    """Of its prompt."""
    sent: float
    """Since the run began."""
    first: float | None = None
    """From sending to the first token; None where none came."""
    last: float = 0.0
    """From sending to the last token, or to the failure."""
    gaps: tuple[float, ...] = ()
    """Between one event with tokens and the next. Several tokens may come in one event."""
    num_prompt_tokens: int = 0
    num_tokens: int = 0
    counted: Literal["usage", "events"] = "usage"
    """How tokens were counted: as the server states them, or by events where it states none."""
    drafters: dict[str, DraftCounts] | None = None
    """By drafter; None where the server does not tell it."""
    stops: dict[str, int] = {}
    """Steps by why they accepted no more draft tokens; none where the server was not asked, or does not tell it."""
    failure: Failure | None = None

    @property
    def ended(self) -> float:
        """Since the run began."""
        return self.sent + self.last

    @property
    def seconds_per_token(self) -> float | None:
        """Between tokens after the first one; None with fewer than two tokens."""
        if self.first is None or self.num_tokens < 2:
            return None
        return (self.last - self.first) / (self.num_tokens - 1)
