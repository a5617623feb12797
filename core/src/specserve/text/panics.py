"""The library tokenizers panics at some data that it has read without a complaint. A panic is no Exception: it would
pass every handler of errors and end the server."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_SHOWN = 200


@contextmanager
def panics_as(made: Callable[[str], Exception]) -> Iterator[None]:
    """made: from what the library says, the error that is raised instead."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # a class that the library does not export
            raise
        raise made(f"the library tokenizers panicked: {str(error)[:MAX_SHOWN]}") from None
