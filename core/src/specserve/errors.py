"""Every exception that specserve raises on purpose.

    SpecserveError
    ├── ConfigError            a bad option, file or combination of them: start-up stops, exit code 2
    │   ├── PluginError        a plugin is missing, broken, or is incompatible with another
    │   └── ModelError         a model directory that cannot be served
    ├── RequestError           this request cannot be served; answers 400 (or `status`)
    │   ├── ModelNotFoundError 404
    │   ├── ResponseNotFoundError 404
    │   └── QueueFullError     429
    └── EngineDeadError        the step loop died; every request gets this, /health says 503
        └── ShuttingDownError  it was stopped on purpose: a retry may succeed

A message says who, what, what was got, what is allowed, and what to do.
"""

from __future__ import annotations

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The code of a `RequestError` whose prompt is too long."""


class SpecserveError(Exception):
    """Base of every deliberate error."""


class ConfigError(SpecserveError):
    """The configuration cannot be served. The command line prints it as one paragraph and exits with 2."""


class PluginError(ConfigError):
    """A plugin is missing, fails to import, misspells a hook, or is not compatible with what is enabled."""


class ModelError(ConfigError):
    """A model directory is missing, truncated, unsafe or of an unsupported kind."""


class RequestError(SpecserveError):
    """A request that cannot be served. `param` names the offending field of the HTTP API. `code` is a word for programs
    that handle this error."""

    status = 400
    type = "invalid_request_error"
    default_code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = self.default_code if code is None else code


class ModelNotFoundError(RequestError):
    """No model, or adapter, of that name is served."""

    status = 404
    default_code = "model_not_found"


class ResponseNotFoundError(RequestError):
    """No response of that id is stored, for this client."""

    status = 404
    default_code = "response_not_found"


class QueueFullError(RequestError):
    """Too many requests wait already; try again after `retry_after` seconds."""

    status = 429
    type = "rate_limit_error"

    def __init__(self, message: str, *, retry_after: int = 1) -> None:
        super().__init__(message, code="queue_full")
        self.retry_after = retry_after


class EngineDeadError(SpecserveError):
    """The engine's step loop has stopped; `__cause__` holds what stopped it."""


class ShuttingDownError(EngineDeadError):
    """The engine was stopped before the request was done."""
