"""The lines of the access log: `--access-log text` or `json`. No prompt, no key and no query string is in them."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specserve_server.app.json_lines import line_fields, time_text
from specserve_server.generation.usage import usage
from specserve_server.state.request_record import CLIENT, RECORD
from specserve_server.state.server_state import state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web

    from specserve_checks.json_types import JsonObject, JsonValue

logger = logging.getLogger("specserve.access")
LEADING = ("time", "client", "method", "path", "status", "seconds")
"""In text: without their names, in front."""
PLAIN = re.compile(r"[!#-~]+")
"""What stands in a line of text without quotes."""
MAX_PATH_LENGTH = 256


def access_fields(request: web.Request, status: int, seconds: float) -> JsonObject:
    record = request[RECORD]
    fields: JsonObject = {
        "time": time_text(datetime.now(UTC)),
        "client": client_of(request),
        "method": request.method,
        "path": request.rel_url.raw_path[:MAX_PATH_LENGTH],
        "status": status,
        "seconds": round(seconds, 4),
        "id": record.id,
    }
    if record.key_name is not None:
        fields["key"] = record.key_name
    generation = record.generation
    if generation is not None:
        counts = usage(generation.choices, generation.num_choices)
        fields |= {"model": generation.model, "answer": generation.id}
        fields |= {"prompt_tokens": counts.prompt_tokens, "completion_tokens": counts.completion_tokens}
    return fields


def client_of(request: web.Request) -> str:
    """Its address. Where a server has several processes, what comes over a unix socket was passed on by one of them."""
    is_passed_on = request.remote == "" and state_of(request).config.http_processes > 1
    return (request.headers.get(CLIENT) if is_passed_on else request.remote) or "unix"


def access_line(fields: JsonObject, form: str, log_format: str = "text") -> str:
    """In a log whose lines are JSON it has what every line has."""
    if log_format == "json":
        message = " ".join(plain(fields[name]) for name in ("method", "path", "status"))
        return json.dumps({**line_fields("INFO", logger.name, message), **fields})
    if form == "json":
        return json.dumps(fields)
    leading = [plain(fields[name]) for name in LEADING]
    named = [f"{name}={plain(value)}" for name, value in fields.items() if name not in LEADING]
    return " ".join([*leading, *named])


def plain(value: JsonValue) -> str:
    text = str(value)
    return text if PLAIN.fullmatch(text) else json.dumps(text)


@contextmanager
def access_log_on_stderr() -> Iterator[None]:
    """Lines go to standard error as they are, whatever else is logged there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(message)s"))
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
