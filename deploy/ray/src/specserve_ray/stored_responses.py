"""Which replica holds a stored response or an item of one. Replicas keep them in memory, and each knows only its own.

Learned from the answers that pass; where that does not tell, all replicas are asked.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from specserve_ray.change_routes import JSON_HEADERS
from specserve_ray.errors import RESPONSES
from specserve_ray.everywhere import ask_all
from specserve_ray.forwarding import path_of
from specserve_ray.wire import Head

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterator

    from ray.serve.handle import DeploymentHandle

    from specserve_ray.wire import ForwardedRequest

ID = re.compile(rb'"id":"([a-z]{2,4}_[0-9a-f]{32})"')
MAX_ID_BYTES = 64
"""An id with its name, which may come in two parts."""
MAX_KNOWN = 100_000


class Reference(msgspec.Struct, frozen=True):
    type: str | None = None
    id: str | None = None


class Referring(msgspec.Struct, frozen=True):
    """The fields of a body that name what is stored."""

    previous_response_id: str | None = None
    input: str | list[Reference] | None = None


class StoredResponses:
    def __init__(self, replicas: DeploymentHandle) -> None:
        self.replicas = replicas
        self.holders: OrderedDict[str, str] = OrderedDict()
        """By id of a response or an item."""

    async def holder(self, request: ForwardedRequest) -> str:
        """The id of the replica that has what the request reads; "" where it reads nothing that is stored, or where
        none has it."""
        for id in ids_in(request):
            if found := self.holders.get(id) or await self.search(id, request):
                return found
        return ""

    async def search(self, id: str, request: ForwardedRequest) -> str:
        """With the client's key: others are not told of a response."""
        keys = tuple(each for each in request.headers if each[0].lower() in ("authorization", "x-api-key"))
        asked = replace(request, method="GET", path=f"{RESPONSES}/{id}", headers=keys + JSON_HEADERS, body=b"")
        found = (each.head.replica for each in await ask_all(self.replicas, asked) if each.head.status == 200)
        return self.learn(id, next(found, ""))

    def learn(self, id: str, replica: str) -> str:
        if replica:
            self.holders[id] = replica
            self.holders.move_to_end(id)
            if len(self.holders) > MAX_KNOWN:
                self.holders.popitem(last=False)
        return replica

    async def watched(self, parts: AsyncIterator[Head | bytes]) -> AsyncGenerator[Head | bytes, None]:
        """The parts of a response that is made, unchanged."""
        replica, last = "", b""
        async for part in parts:
            if isinstance(part, Head):
                replica = part.replica
            else:
                last += part
                for found in ID.findall(last):
                    self.learn(found.decode(), replica)
                last = last[-MAX_ID_BYTES:]
            yield part


def ids_in(request: ForwardedRequest) -> Iterator[str]:
    """What a request reads: by its path, or by its body."""
    path = path_of(request)
    if path.startswith(f"{RESPONSES}/"):
        yield path.removeprefix(f"{RESPONSES}/")
    elif path == RESPONSES and request.method == "POST":
        yield from ids_in_body(request.body)


def ids_in_body(body: bytes) -> Iterator[str]:
    try:
        referring = msgspec.json.decode(body, type=Referring)
    except msgspec.DecodeError:
        return  # a replica says what is wrong
    if referring.previous_response_id is not None:
        yield referring.previous_response_id
    if isinstance(referring.input, list):
        yield from (each.id for each in referring.input if each.type == "item_reference" and each.id is not None)
