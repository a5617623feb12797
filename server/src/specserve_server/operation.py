"""What one route takes and answers, as data. Handlers of plugins carry theirs: `@describe(Operation(...))`.

Method and path are the route's own. Knows nothing about HTTP libraries or about how the document is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import msgspec

H = TypeVar("H", bound=Callable[..., object])
ATTRIBUTE = "specserve_operation"
"""Of a handler: its `Operation`."""
JSON, TEXT, EVENTS = "application/json", "text/plain", "text/event-stream"


class OneOfSubclasses(msgspec.Struct):
    """A direct subclass stands for one of its own subclasses, which its field `type` tells. For objects whose first
    field is another: msgspec's tags come first, and of Structs without tags it knows no union."""


class Events(msgspec.Struct, frozen=True):
    """A stream of server-sent events, whose data are of these types. `is_named`: each has its type as its name;
    otherwise the last one is [DONE]."""

    types: tuple[object, ...]
    is_named: bool = False


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`content`: by media type, what msgspec calls a type, such as a Struct, or `Events`."""

    content: Mapping[str, object]
    status: int | Literal["default"] = 200
    description: str = "OK"


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """`errors`: statuses beside those of every route and of every body. An error has the body of all errors."""

    summary: str
    tag: str = "plugins"
    body: type[msgspec.Struct] | None = None
    """JSON."""
    required: tuple[str, ...] = ()
    """Fields of the body that must be there and are not null, though its Struct allows it."""
    one_of: tuple[str, ...] = ()
    """Exactly one of these fields of the body must be there."""
    query: Mapping[str, object] = {}
    """Optional parameters, with their types."""
    example: Mapping[str, object] | None = None
    """A body."""
    answers: tuple[Answer, ...] = ()
    """None: they are not described."""
    errors: tuple[int, ...] = ()
    is_public: bool = False
    """No API key is needed."""


def describe(operation: Operation) -> Callable[[H], H]:
    """Decorates the handler of a route, so that /openapi.json describes the route."""

    def decorate(handler: H) -> H:
        setattr(handler, ATTRIBUTE, operation)
        return handler

    return decorate


def operation_of(handler: object) -> Operation | None:
    found = getattr(handler, ATTRIBUTE, None)
    assert found is None or isinstance(found, Operation), "describe sets it"
    return found
