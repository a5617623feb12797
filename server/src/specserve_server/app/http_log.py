"""The log of failures below the routes: bytes that are not HTTP, clients that disconnected.

aiohttp logs each with a traceback, so that any client could fill the log. Here malformed HTTP is one line at level
INFO and a disconnect is not logged; internal failures keep their tracebacks.
"""

from __future__ import annotations

import logging

from aiohttp.http import HttpProcessingError


class ClientErrorFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.msg, record.args = "%s: %.200r", (record.getMessage(), error.message)
            record.exc_info = None
        return not isinstance(error, ConnectionResetError)


logger = logging.getLogger("specserve.server.http")
logger.addFilter(ClientErrorFilter())
