"""What passes between the ingress and a replica, as frozen Structs that Ray pickles. Knows no Ray and no HTTP."""

from __future__ import annotations

import msgspec

Headers = tuple[tuple[str, str], ...]


class RoutingKey(msgspec.Struct, frozen=True):
    """What the router is told of a request."""

    namespace: str = ""
    """Whose KV blocks and n-gram statistics it shares: `specserve.namespaces`, with the adapter's name."""
    adapter: str = ""
    """The model that the request names; the router knows which names are adapters."""
    chain: tuple[bytes, ...] = ()
    """The hashes of its prompt's blocks, each of all the text up to its end."""
    wanted: str = ""
    """The id of the replica that should serve it, because it holds what the request reads."""
    id: str = ""
    """Of the request, where it may be sent again."""
    attempt: int = 0
    """How often it was sent before."""


class ForwardedRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    """As it was sent, with the query."""
    headers: Headers
    body: bytes
    key: RoutingKey = RoutingKey()
    changes: int = 0
    """The number of changes of adapters and corpora that the replica must have made before."""


class Head(msgspec.Struct, frozen=True):
    """The first that a replica sends of an answer; its body follows as bytes."""

    status: int
    headers: Headers
    replica: str


class Answer(msgspec.Struct, frozen=True):
    """A whole one."""

    head: Head
    body: bytes
