"""Statistics of a replay: acceptance length, drafted nodes, time, and the calibration of estimated survivals.

Knows neither traces nor drafters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NUM_BINS = 10
MIN_BIN_SHARE = 0.01
"""Bins with fewer nodes do not count in the calibration error: their observed share is noise."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Drafted nodes whose estimated survival lies in one tenth of [0, 1]."""

    num_nodes: int = 0
    survival_sum: float = 0.0
    num_accepted: int = 0

    def __add__(self, other: Bin) -> Bin:
        return Bin(
            self.num_nodes + other.num_nodes,
            self.survival_sum + other.survival_sum,
            self.num_accepted + other.num_accepted,
        )

    @property
    def estimated(self) -> float:
        return self.survival_sum / self.num_nodes if self.num_nodes else 0.0

    @property
    def observed(self) -> float:
        return self.num_accepted / self.num_nodes if self.num_nodes else 0.0


Bins = tuple[Bin, ...]
EMPTY_BINS: Bins = (Bin(),) * NUM_BINS


@dataclass(frozen=True, slots=True)
class ReplayStats:
    """Sums over one trace or many. Without drafts the mean acceptance length is 1."""

    num_tokens: int = 0
    """Emitted: accepted nodes and one bonus token per step."""
    num_steps: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    draft_seconds: float = 0.0
    """In `propose` and `feed`."""
    ingest_seconds: float = 0.0
    """In `start` and `stop`, where prompts are indexed."""
    num_prompt_tokens: int = 0
    bins: Bins = EMPTY_BINS

    def __add__(self, other: ReplayStats) -> ReplayStats:
        return ReplayStats(
            num_tokens=self.num_tokens + other.num_tokens,
            num_steps=self.num_steps + other.num_steps,
            num_drafted=self.num_drafted + other.num_drafted,
            num_accepted=self.num_accepted + other.num_accepted,
            draft_seconds=self.draft_seconds + other.draft_seconds,
            ingest_seconds=self.ingest_seconds + other.ingest_seconds,
            num_prompt_tokens=self.num_prompt_tokens + other.num_prompt_tokens,
            bins=tuple(a + b for a, b in zip(self.bins, other.bins, strict=True)),
        )

    @property
    def mean_acceptance_length(self) -> float:
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def drafted_per_accepted(self) -> float:
        """Infinite where drafts were proposed and no node was accepted; 0 where none was proposed."""
        if self.num_accepted:
            return self.num_drafted / self.num_accepted
        return float("inf") if self.num_drafted else 0.0

    @property
    def draft_us_per_step(self) -> float:
        return self.draft_seconds / self.num_steps * 1e6 if self.num_steps else 0.0

    @property
    def ingest_us_per_token(self) -> float:
        return self.ingest_seconds / self.num_prompt_tokens * 1e6 if self.num_prompt_tokens else 0.0


def add_to_bins(bins: list[Bin], nodes: Iterable[tuple[float, bool]]) -> None:
    """nodes: (estimated survival, accepted)."""
    for survival, accepted in nodes:
        index = min(int(survival * NUM_BINS), NUM_BINS - 1)
        bins[index] += Bin(1, survival, int(accepted))


def max_calibration_error(bins: Bins) -> float:
    """The largest |estimated - observed| over the bins that hold at least 1 % of the nodes."""
    total = sum(bin.num_nodes for bin in bins)
    large = [bin for bin in bins if bin.num_nodes and bin.num_nodes >= MIN_BIN_SHARE * total]
    return max((abs(bin.estimated - bin.observed) for bin in large), default=0.0)
