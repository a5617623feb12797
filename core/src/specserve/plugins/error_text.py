"""Parts of error messages: suggestions for misspelt names, and what an exception says."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from specserve.faults import error_text

if TYPE_CHECKING:
    from collections.abc import Iterable


def suggest(got: str, allowed: Iterable[str]) -> str | None:
    """The allowed word that `got` most resembles, if any."""
    return next(iter(difflib.get_close_matches(got, list(allowed), n=1, cutoff=0.7)), None)


def did_you_mean(got: str, allowed: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` or nothing: the middle of an error message."""
    close = suggest(got, allowed)
    return f"; did you mean {close!r}?" if close else ""


def describe_error(error: BaseException) -> str:
    text = error_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
