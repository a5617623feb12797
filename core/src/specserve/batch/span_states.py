"""Where a span's recurrent layers find the state before its rows, and where they leave the one behind them."""

from __future__ import annotations

import msgspec


class SpanStates(msgspec.Struct, frozen=True, array_like=True):
    """Slots are those of `specserve.kv.states`."""

    position: int
    """Tokens that the source stands for."""
    source: int
    followed: tuple[int, ...]
    """Draft tokens of the step that wrote the source, in order: they were accepted behind it, and the span begins
    behind the last."""
    target: int
    """For the state behind the span's committed tokens, and what its draft tokens leave."""
    saved: tuple[tuple[int, int], ...] = ()
    """Ascending (tokens, slot): the state behind so many tokens is to be in that slot, too."""
