"""What can be wrong with an adapter, by status.

RequestError
├── AdapterError              400  the name, the path or the files in it
│   ├── RoutesDisabledError   403  this server loads nothing for clients
│   ├── UnknownAdapterError   404
│   ├── AdapterConflictError  409  the name is taken, or requests use the adapter
│   └── AdapterReloadError    503  it was evicted and cannot be read again
└── QueueFullError
    └── AdapterCapacityError  429  requests use every loaded adapter
"""

from __future__ import annotations

from specserve.api import QueueFullError, RequestError


class AdapterError(RequestError):
    """An adapter that cannot be served."""


class RoutesDisabledError(AdapterError):
    status = 403
    type = "permission_error"


class UnknownAdapterError(AdapterError):
    status = 404


class AdapterConflictError(AdapterError):
    status = 409


class AdapterReloadError(AdapterError):
    status = 503
    type = "service_unavailable_error"


class AdapterCapacityError(QueueFullError):
    """Adapters can be evicted when requests have ended: the client may try again."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = "adapters_full"
