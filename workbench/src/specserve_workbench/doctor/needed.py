"""What a check needs of earlier ones: where these have failed, it says so in place of failing again."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from specserve.faults import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator


class UnknownError(Exception):
    """A check needs what an earlier one could not find, and has said."""


@contextmanager
def needed(otherwise: str) -> Iterator[None]:
    """Around what other checks report: its errors become an UnknownError that says `otherwise`."""
    try:
        yield
    except FAULTS as error:
        raise UnknownError(otherwise) from error
