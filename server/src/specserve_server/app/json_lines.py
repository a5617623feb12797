"""Log lines as JSON, one object per line: `--log-format json`.

Also for what does not pass the root logger: announcements, uncaught exceptions, and libraries with handlers of their
own. Native code that writes to standard error by itself is out of reach.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from specserve import announcements

if TYPE_CHECKING:
    from types import TracebackType

    from specserve_checks.json_types import JsonObject

logger = logging.getLogger("specserve")


class JsonFormatter(logging.Formatter):
    """`request_id` is there in the course of a request, `traceback` where the record has an exception or a stack."""

    def format(self, record: logging.LogRecord) -> str:
        fields = line_fields(record.levelname, record.name, record.getMessage(), record.created)
        request_id = getattr(record, "request_id", None)
        if request_id is not None:
            fields["request_id"] = request_id
        traces = [self.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] is not None else []
        if record.stack_info:
            traces.append(record.stack_info)
        if traces:
            fields["traceback"] = "\n".join(traces)
        return json.dumps(fields)


def line_fields(level: str, name: str, message: str, at: float | None = None) -> JsonObject:
    """What every line has. `at`: seconds since the epoch, by default now."""
    when = datetime.now(UTC) if at is None else datetime.fromtimestamp(at, UTC)
    return {"time": time_text(when), "level": level, "logger": name, "message": message}


def time_text(when: datetime) -> str:
    """`2026-11-24T21:44:30.123Z`"""
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def announce_in_json() -> None:
    announcements.handler.setFormatter(JsonFormatter())


def is_in_json() -> bool:
    """Whether announcements are."""
    return isinstance(announcements.handler.formatter, JsonFormatter)


def log_exceptions_in_json() -> None:
    """Those that nobody catches, in the main thread, in others and where objects are destroyed."""
    sys.excepthook = log_uncaught
    threading.excepthook = lambda args: log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)
    sys.unraisablehook = lambda args: log_uncaught(args.exc_type, args.exc_value, args.exc_traceback)


def log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt | SystemExit):
        return
    logger.critical("%s: %s", kind.__name__, error, exc_info=(kind, error or kind(), trace))


def convert_handlers_of_libraries() -> None:
    """Those that write to standard output or error, as far as the libraries are imported."""
    loggers = [each for each in logging.root.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    for handler in (handler for each in loggers if not each.name.startswith("specserve.") for handler in each.handlers):
        if isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr):
            handler.setFormatter(JsonFormatter())
