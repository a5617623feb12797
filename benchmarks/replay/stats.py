"""What a replay counts: tokens, steps, nodes, time, and whether stated survivals came true.

Owns the figures and their sums. Knows neither streams nor drafters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

NUM_BINS = 10
MIN_BIN_SHARE = 0.01
"""Smaller bins are not held against a drafter: their observed share is chance."""


class Bin(NamedTuple):
    """Drafted nodes whose stated survival lies in one tenth of [0, 1]."""

    num_nodes: int = 0
    stated: float = 0.0
    """Sum of the stated survivals."""
    num_true: int = 0

    def __or__(self, other: Bin) -> Bin:
        return Bin(self.num_nodes + other.num_nodes, self.stated + other.stated, self.num_true + other.num_true)

    @property
    def estimated(self) -> float:
        return self.stated / self.num_nodes if self.num_nodes else 0.0

    @property
    def observed(self) -> float:
        return self.num_true / self.num_nodes if self.num_nodes else 0.0


Bins = tuple[Bin, ...]
NO_BINS: Bins = (Bin(),) * NUM_BINS


class Figures(NamedTuple):
    """Of one stream or of many; `|` adds. Plain decoding has a mean accept length of 1."""

    num_tokens: int = 0
    """Emitted: accepted nodes, and one bonus token each step."""
    num_steps: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    seconds: float = 0.0
    """In `propose` and `feed`."""
    start_seconds: float = 0.0
    """In `start` and `stop`: where prompts are taken in."""
    num_prompt: int = 0
    bins: Bins = NO_BINS

    def __or__(self, other: Figures) -> Figures:
        return Figures(
            num_tokens=self.num_tokens + other.num_tokens,
            num_steps=self.num_steps + other.num_steps,
            num_drafted=self.num_drafted + other.num_drafted,
            num_accepted=self.num_accepted + other.num_accepted,
            seconds=self.seconds + other.seconds,
            start_seconds=self.start_seconds + other.start_seconds,
            num_prompt=self.num_prompt + other.num_prompt,
            bins=tuple(mine | theirs for mine, theirs in zip(self.bins, other.bins, strict=True)),
        )

    @property
    def mean_accept_len(self) -> float:
        return self.num_tokens / self.num_steps if self.num_steps else 0.0

    @property
    def drafted_per_accepted(self) -> float:
        """Infinite where drafts were made and none was accepted; 0 where none was made."""
        if self.num_accepted:
            return self.num_drafted / self.num_accepted
        return float("inf") if self.num_drafted else 0.0

    @property
    def us_per_call(self) -> float:
        return self.seconds / self.num_steps * 1e6 if self.num_steps else 0.0

    @property
    def start_us_per_token(self) -> float:
        return self.start_seconds / self.num_prompt * 1e6 if self.num_prompt else 0.0


def add_nodes(bins: list[Bin], nodes: Sequence[tuple[float, bool]]) -> None:
    """Count nodes given as (stated survival, came true)."""
    for survival, came_true in nodes:
        index = min(int(survival * NUM_BINS), NUM_BINS - 1)
        bins[index] |= Bin(1, survival, int(came_true))


def worst_error(bins: Bins) -> float:
    """The largest |estimated - observed| of the bins that hold at least 1 % of the nodes."""
    total = sum(bin.num_nodes for bin in bins)
    held = [bin for bin in bins if bin.num_nodes and bin.num_nodes >= MIN_BIN_SHARE * total]
    return max((abs(bin.estimated - bin.observed) for bin in held), default=0.0)
