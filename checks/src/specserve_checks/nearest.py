"""Which of the allowed words was probably meant."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggest(got: str, allowed: Iterable[str], cutoff: float = 0.7) -> str | None:
    """The allowed word that `got` most resembles, if any. `cutoff`: how much, at most 1."""
    return next(iter(difflib.get_close_matches(got, list(allowed), n=1, cutoff=cutoff)), None)


def did_you_mean(got: str, allowed: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` or nothing: the middle of an error message."""
    close = suggest(got, allowed)
    return f"; did you mean {close!r}?" if close else ""
