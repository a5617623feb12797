"""Where code of an author stands, as `FILE:LINE`: of a function, a class or an object, and of an exception.

For messages to authors of plugins. Never raises. No torch.
"""

from __future__ import annotations

import inspect
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

OURS = ("specserve", "specserve_draft_models", "specserve_server", "specserve_workbench")
NOT_THE_AUTHORS = frozenset((*OURS, "pluggy", "importlib", "_frozen_importlib", "contextlib"))
"""Packages whose frames lead to an author's code."""


def place_of(value: object) -> str:
    """Where a function or class stands; for any other object, where its class does. Empty without source or author."""
    if not (inspect.isroutine(value) or isinstance(value, type)):
        value = type(value)
    if str(getattr(value, "__module__", "")).partition(".")[0] in NOT_THE_AUTHORS:
        return ""
    try:
        value = inspect.unwrap(value)
        code = getattr(value, "__code__", None)
        if code is not None:
            return place(code.co_filename, code.co_firstlineno)
        file = inspect.getsourcefile(value)  # type: ignore[arg-type]
        return place(file, inspect.getsourcelines(value)[1]) if file else ""  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError):
        return ""


def place_of_error(error: BaseException) -> str:
    """The innermost line of the package that specserve called first: a library that the author calls is not the
    author's. Empty where no other code took part."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return place(error.filename, error.lineno)
    author, found, at = "", "", error.__traceback__
    while at is not None:
        package = package_of(at.tb_frame)
        if not author and package not in NOT_THE_AUTHORS:
            author = package
        if author and package == author:
            found = place(at.tb_frame.f_code.co_filename, at.tb_lineno)
        at = at.tb_next
    return found


def package_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def place(file: str, line: int) -> str:
    """Relative to the working directory where the file lies below it."""
    relative = os.path.relpath(file) if os.path.isabs(file) else file
    return f"{file if relative.startswith(os.pardir) else relative}:{line}"


def where_written(value: object) -> str:
    """`place_of` in brackets, for a message. Reads sources: for errors only."""
    return in_brackets(place_of(value))


def in_brackets(where: str) -> str:
    """` (FILE:LINE)` or nothing: a part of a message."""
    return f" ({where})" if where else ""
