"""How `specserve serve` writes its log: on standard error, as text with time, module and request id, or as JSON."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from specserve_server.app.json_lines import (
    JsonFormatter,
    announce_in_json,
    convert_handlers_of_libraries,
    log_exceptions_in_json,
)
from specserve_server.state.request_record import CURRENT

if TYPE_CHECKING:
    from typing import TextIO


class RequestIdFilter(logging.Filter):
    """Adds the id of the request in whose course a record was logged: `request_id`, and `request` for text."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = CURRENT.get()
        record.request_id = None if current is None else current.id
        record.request = "" if current is None else f" [{current.id}]"
        return True


def log_to_stderr(level: str = "warning", form: str = "text") -> None:
    """Warnings of Python too. Unless the root logger has handlers already."""
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[make_handler(sys.stderr, level, form)], level=level.upper())
    if form == "json":
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # they are no lines
        announce_in_json()
        log_exceptions_in_json()
        convert_handlers_of_libraries()


def make_handler(stream: TextIO, level: str = "warning", form: str = "text") -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setLevel(level.upper())  # also for records that a filter has lowered, such as those of malformed HTTP
    handler.setFormatter(JsonFormatter() if form == "json" else text_formatter())
    handler.addFilter(RequestIdFilter())
    return handler


def text_formatter() -> logging.Formatter:
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(name)s%(request)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    return formatter
