"""The operations of the routes that plugins have added: described by their handlers, or by their names alone."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from specserve_server.operation import Operation, operation_of

if TYPE_CHECKING:
    from aiohttp import web

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})


def plugin_operations(app: web.Application) -> dict[str, dict[str, Operation]]:
    """By path and method. A route without a path of its own, such as a folder of files, is left out."""
    found: dict[str, dict[str, Operation]] = {}
    for route in app.router.routes():
        if route.method in METHODS and route.resource is not None:
            operation = operation_of(route.handler) or undescribed(route.handler)
            found.setdefault(route.resource.canonical, {})[route.method.lower()] = operation
    return found


def undescribed(handler: object) -> Operation:
    summary, _, _ = (inspect.getdoc(handler) or "A route of a plugin").partition("\n")
    return Operation(summary=summary)
