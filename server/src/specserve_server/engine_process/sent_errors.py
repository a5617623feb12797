"""Errors that cross from the engine's process, and are raised again in the server with the same answer."""

from __future__ import annotations

import logging

import msgspec

from specserve.errors import (
    ConfigError,
    EngineDeadError,
    ModelError,
    PluginError,
    QueueFullError,
    RequestError,
    ShuttingDownError,
)
from specserve.faults import error_summary
from specserve_server.errors import GenerationError

KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (ConfigError, PluginError, ModelError, ShuttingDownError, EngineDeadError, GenerationError)
}
"""Those that have nothing but a message."""
logger = logging.getLogger(__name__)


class RequestDetails(msgspec.Struct, frozen=True):
    """Of a `RequestError`, those of plugins too, whose classes the server may lack."""

    param: str | None
    code: str | None
    status: int
    type: str
    retry_after: int | None


class SentError(msgspec.Struct, frozen=True):
    """`kind`: the name of a class above; "" for a `RequestError`, and for what was not raised on purpose."""

    message: str
    kind: str = ""
    request: RequestDetails | None = None


class EngineProcessError(Exception):
    """What was not raised on purpose, in the engine's process, whose log has the traceback."""


class SentRequestError(RequestError):
    """With the status and the type that it had."""

    def __init__(self, message: str, details: RequestDetails) -> None:
        super().__init__(message, param=details.param, code=details.code)
        self.status, self.type = details.status, details.type


def encodable(text: str) -> str:
    """A plugin's text may have halves of surrogate pairs, which no encoder takes: what is sent with it would be
    lost."""
    return text.encode(errors="replace").decode()


def sent(error: BaseException) -> SentError:
    """In the engine's process. What nobody raised on purpose is logged here."""
    if isinstance(error, RequestError):
        retry_after = getattr(error, "retry_after", None)
        details = RequestDetails(error.param, error.code, error.status, error.type, retry_after)
        return SentError(encodable(str(error)), request=details)
    for kind in type(error).__mro__:
        if kind.__name__ in KINDS:
            return SentError(encodable(str(error)), kind.__name__)
    logger.error("a call of the server failed", exc_info=error)
    return SentError(encodable(error_summary(error)))


def received(error: SentError) -> Exception:
    """In the server."""
    if error.request is not None and error.request.retry_after is not None:
        return QueueFullError(error.message, retry_after=error.request.retry_after)
    if error.request is not None:
        return SentRequestError(error.message, error.request)
    return KINDS.get(error.kind, EngineProcessError)(error.message)
