"""How `specserve serve` writes its log: warnings and errors on standard error, with time, module and request id."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING

from specserve.server.request_record import CURRENT

if TYPE_CHECKING:
    from typing import TextIO


class RequestIdFilter(logging.Filter):
    """Adds `request` to a record: the id of the request in whose course it was logged."""

    def filter(self, record: logging.LogRecord) -> bool:
        current = CURRENT.get()
        record.request = "" if current is None else f" [{current.id}]"
        return True


def log_to_stderr() -> None:
    """Unless the root logger has handlers already."""
    logging.basicConfig(handlers=[make_handler(sys.stderr)], level=logging.WARNING)


def make_handler(stream: TextIO) -> logging.Handler:
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)  # also for records that a filter has lowered, such as those of malformed HTTP
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(name)s%(request)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(RequestIdFilter())
    return handler
