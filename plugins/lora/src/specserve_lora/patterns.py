"""Regular expressions from adapters, which are untrusted, matched without blocking the server.

Matching can take exponential time, and `re` holds the GIL meanwhile. Patterns with a quantifier are therefore matched
in a process of its own, with a timeout.
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
TIMEOUT_SECONDS = 5.0


class MatchLayer(Protocol):
    """`regex_worker.match_layer`, or a table of its answers."""

    def __call__(self, kind: str, pattern: str, path: str, /) -> str | None: ...


def safe_matcher(
    patterns: Collection[str], queries: Collection[tuple[str, str]], paths: Sequence[str], source: str
) -> MatchLayer:
    """For these (kind, pattern) and paths; `patterns` are the adapter's own, which the queries contain.

    AdapterError where one is no regular expression, or where matching exceeds the timeout.
    """
    for pattern in (*patterns, *(pattern for _, pattern in queries)):
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError) as error:
            raise AdapterError(
                f"{source}: {pattern[:200]!r} is not a regular expression: {error}.", param="lora_path"
            ) from None
    if not any(QUANTIFIERS & set(pattern) for pattern in patterns):
        return regex_worker.match_layer
    ordered = list(queries)
    answers = run_worker([ordered, list(paths)], source)
    table = {
        (*query, path): answer
        for query, row in zip(ordered, answers, strict=True)
        for path, answer in zip(paths, row, strict=True)
    }
    return lambda kind, pattern, path: table[kind, pattern, path]


def run_worker(queries: object, source: str) -> list[list[str | None]]:
    command = [sys.executable, "-I", "-S", regex_worker.__file__]
    try:
        process = subprocess.run(
            command, input=json.dumps(queries).encode(), capture_output=True, timeout=TIMEOUT_SECONDS
        )
        answer = json.loads(process.stdout)
        answers: list[list[str | None]] = answer["answers"]
    except subprocess.TimeoutExpired:
        raise AdapterError(
            f"{source}: its patterns take more than {TIMEOUT_SECONDS:g} seconds on this model's modules. Write simpler "
            "ones, or name the modules.",
            param="lora_path",
        ) from None
    except (OSError, ValueError, KeyError) as error:
        raise AdapterError(f"{source}: its patterns cannot be matched: {error}.", param="lora_path") from error
    return answers
