"""What can be wrong with an adapter, by status.

RequestError
├── AdapterError              400  the name, the path or what lies there
│   ├── RoutesDisabledError     403  this server loads nothing for clients
│   ├── UnknownAdapterError   404
│   ├── AdapterConflictError  409  the name is taken, or the adapter is in use
│   └── LostAdapterError      503  it was evicted, and its path no longer holds it
└── QueueFullError
    └── NoRoomError           429  every loaded adapter is in use
"""

from __future__ import annotations

from specserve.errors import QueueFullError, RequestError


class AdapterError(RequestError):
    """An adapter that cannot be served."""


class RoutesDisabledError(AdapterError):
    status = 403
    type = "permission_error"


class UnknownAdapterError(AdapterError):
    status = 404


class AdapterConflictError(AdapterError):
    status = 409


class LostAdapterError(AdapterError):
    status = 503
    type = "service_unavailable_error"


class NoRoomError(QueueFullError):
    """Requests that end make room."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = "adapters_full"
