"""What a command tells whoever started it: what it loads, what it chose, that it drains, why it ends.

Lines on standard error that begin with `specserve: `, whatever the log's level is. `--log-format json` gives the
handler another formatter. Knows nothing about what is told.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


class StderrHandler(logging.StreamHandler["TextIO"]):
    """Writes to what `sys.stderr` is when a line is written, so that whoever replaces it gets the line."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError("it is sys.stderr")


class PlainFormatter(logging.Formatter):
    """`specserve: ready`, or `specserve: error: no such model`."""

    def format(self, record: logging.LogRecord) -> str:
        kind = "error: " if record.levelno >= logging.ERROR else ""
        return f"specserve: {kind}{record.getMessage()}"


logger = logging.getLogger("specserve.announcements")
handler = StderrHandler()
handler.setFormatter(PlainFormatter())
logger.addHandler(handler)
logger.setLevel(logging.INFO)
logger.propagate = False


def announce(text: str) -> None:
    logger.info("%s", text)


def announce_failure(text: str) -> None:
    """Why the command does not go on."""
    logger.error("%s", text)
