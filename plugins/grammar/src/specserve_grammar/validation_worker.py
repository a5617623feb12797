"""The process in which answers are validated: a client's schema may take for ever, or more memory than there is.

Run as a file. Each line of standard input is {"schema": text, "value": text}, and each line of standard output
{"errors": [[message, path in the value, path in the schema], ...]}, or {"failure": text} where the value could not be
validated. Imports nothing of specserve.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any

import jsonschema_rs

MAX_BYTES = 2**30
"""Of the process, where the system holds it to that."""
MAX_ERRORS = 8
MAX_CHARACTERS = 300
"""Of an error."""


@lru_cache(maxsize=64)
def validator_of(schema: str) -> Any:
    """Raises ValueError. No other document is fetched, and patterns take linear time."""
    return jsonschema_rs.validator_for(json.loads(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions())


def errors_in(schema: str, value: str) -> list[object]:
    found = islice(validator_of(schema).iter_errors(json.loads(value)), MAX_ERRORS)
    return [[short(error.message), error.instance_path, error.schema_path] for error in found]


def short(message: str) -> str:
    return message if len(message) <= MAX_CHARACTERS else f"{message[: MAX_CHARACTERS - 1]}…"


def main() -> None:
    """The first argument: how many seconds of the CPU a value may take; then the process is ended by SIGPROF."""
    seconds = float(sys.argv[1])
    with suppress(ValueError, OSError):  # macOS refuses: there the seconds alone bound what a value takes
        resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    for line in sys.stdin:
        asked = json.loads(line)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer: dict[str, object] = {"errors": errors_in(asked["schema"], asked["value"])}
        except (ValueError, RecursionError, MemoryError) as error:
            answer = {"failure": str(error).split("\n")[0] or type(error).__name__}
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
