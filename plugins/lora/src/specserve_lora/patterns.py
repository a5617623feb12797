"""Regular expressions of whoever made an adapter, tried where they can do no harm.

A pattern can be written that never ends, and Python's `re` holds the interpreter's lock meanwhile: the server would
stand still. One with a quantifier is therefore tried on all paths in a process of its own, which has seconds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

from specserve_lora import regex_worker
from specserve_lora.errors import AdapterError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

QUANTIFIERS = frozenset("*+?{")
SECONDS = 5.0


class Try(Protocol):
    """`regex_worker.tried`, or a table of its answers."""

    def __call__(self, kind: str, pattern: str, path: str, /) -> str | None: ...


def tried_safely(written: Collection[str], asked: Collection[tuple[str, str]], paths: Sequence[str], where: str) -> Try:
    """For these (kind, pattern) and paths; `written` are the parts of them that the adapter brings. AdapterError for
    what is no pattern or does not end."""
    for pattern in (*written, *(pattern for _, pattern in asked)):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise AdapterError(
                f"{where}: {pattern[:200]!r} is not a regular expression: {error}.", param="lora_path"
            ) from None
    if not any(QUANTIFIERS & set(pattern) for pattern in written):
        return regex_worker.tried
    questions = list(asked)
    answers = ask([questions, list(paths)], where)
    table = {
        (*question, path): answer
        for question, row in zip(questions, answers, strict=True)
        for path, answer in zip(paths, row, strict=True)
    }
    return lambda kind, pattern, path: table[kind, pattern, path]


def ask(question: object, where: str) -> list[list[str | None]]:
    command = [sys.executable, "-I", "-S", regex_worker.__file__]
    try:
        ended = subprocess.run(command, input=json.dumps(question).encode(), capture_output=True, timeout=SECONDS)
        answer = json.loads(ended.stdout)
        answers: list[list[str | None]] = answer["answers"]
    except subprocess.TimeoutExpired:
        raise AdapterError(
            f"{where}: its patterns take more than {SECONDS:g} seconds on this model's modules. Write simpler ones, or "
            "name the modules.",
            param="lora_path",
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise AdapterError(f"{where}: its patterns cannot be tried: {error}.", param="lora_path") from error
    return answers
