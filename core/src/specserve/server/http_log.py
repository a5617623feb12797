"""The log of what goes wrong below the routes: bytes that are no HTTP, clients that left.

aiohttp answers these itself, with 400 in plain text, and logs each as an error with a traceback, so that any client
could fill the log. Here the first is one line and the second nothing; our own failures keep their tracebacks.
"""

from __future__ import annotations

import logging

from aiohttp.http import HttpProcessingError


class ClientFaults(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.msg, record.args = "%s: %.200r", (record.getMessage(), error.message)
            record.exc_info = None
        return not isinstance(error, ConnectionResetError)


logger = logging.getLogger("specserve.server.http")
logger.addFilter(ClientFaults())
