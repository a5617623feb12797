"""A failure of a trial: a kind, which the minimiser keeps, and one line of explanation."""

from __future__ import annotations

import traceback


class Failure(Exception):
    """A guarantee was violated. `kind` is short and has no numbers in it."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind

    def __str__(self) -> str:
        return f"{self.kind}: {super().__str__()}"


class TooSlowError(BaseException):  # the engine takes no such error for a request's or a plugin's fault
    """A trial took longer than it may."""


def as_failure(error: BaseException) -> Failure:
    """Any exception that leaves a trial, by its first cause."""
    if isinstance(error, Failure):
        return error
    first: BaseException = error
    while first.__cause__ is not None:
        first = first.__cause__
    if isinstance(first, TooSlowError):
        return Failure("too slow", str(first))
    at = traceback.extract_tb(first.__traceback__)[-1]
    file = "/".join(at.filename.split("/")[-2:])
    name = type(first).__name__
    return Failure(f"{name} in {file}, {at.name}", f"{first}\n{''.join(traceback.format_exception(first)[-4:])}")
