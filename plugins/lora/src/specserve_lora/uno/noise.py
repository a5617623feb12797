"""The random tokens that drafts are computed behind: those of a position are always the same.

So a draft depends on its request's tokens alone, and never on its neighbours or on the steps before.
"""

from __future__ import annotations

from specserve.api.sampling import row_key

SEED, FIRST = 0, 1
"""Token 0 is left out, as by other engines that serve such adapters."""


def noise_tokens(position: int, count: int, end: int) -> tuple[int, ...]:
    """The tokens of so many positions from this one on, each from `FIRST` to below `end`."""
    return tuple(FIRST + row_key(SEED, at) % (end - FIRST) for at in range(position, position + count))
