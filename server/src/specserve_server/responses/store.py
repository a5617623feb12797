"""The responses that can be read again and continued, in memory: the oldest are dropped.

Each belongs to the client that made it. A response has its conversation with it, so that it outlives those before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from aiohttp import web

from specserve.errors import ResponseNotFoundError
from specserve_checks.type_words import shown
from specserve_server.limits import MAX_STORED_BYTES, MAX_STORED_RESPONSES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import Message
    from specserve_server.bodies.responses import InputItem


class StoredResponse(NamedTuple):
    """`data`: the response as JSON. `output`: its items. `messages`: the conversation, with them and without
    instructions."""

    owner: str
    data: bytes
    output: Sequence[InputItem]
    messages: Sequence[Message]
    num_bytes: int


class ResponseStore:
    """Bounded by number and by bytes. A conversation counts in each of its responses, although they share it."""

    def __init__(self, max_responses: int = MAX_STORED_RESPONSES, max_bytes: int = MAX_STORED_BYTES) -> None:
        self.max_responses, self.max_bytes = max_responses, max_bytes
        self.num_bytes = 0
        self.responses: dict[str, StoredResponse] = {}
        """By id, the oldest first."""
        self.response_ids: dict[str, str] = {}
        """By the ids of output items."""

    def put(self, id: str, owner: str, data: bytes, output: Sequence[InputItem], messages: Sequence[Message]) -> None:
        num_bytes = len(data) + len(msgspec.json.encode(output)) + len(msgspec.json.encode(messages))
        self.responses[id] = StoredResponse(owner, data, output, messages, num_bytes)
        self.response_ids |= {item.id: id for item in output if item.id is not None}
        self.num_bytes += num_bytes
        while len(self.responses) > self.max_responses or self.num_bytes > self.max_bytes:
            self.drop(next(iter(self.responses)))

    def get(self, id: str, owner: str, *, param: str | None = None) -> StoredResponse:
        """Raises ResponseNotFoundError, for responses of others, too."""
        found = self.responses.get(id)
        if found is None or found.owner != owner:
            why = "it is unknown, was made with store false, was deleted, or was among the oldest and is dropped"
            what, code = (
                ("Send the conversation as input", "previous_response_not_found") if param else ("Ask anew", None)
            )
            raise ResponseNotFoundError(f"no response {shown(id)} is stored: {why}. {what}.", param=param, code=code)
        return found

    def delete(self, id: str, owner: str) -> None:
        self.get(id, owner)
        self.drop(id)

    def drop(self, id: str) -> None:
        dropped = self.responses.pop(id)
        self.num_bytes -= dropped.num_bytes
        for item in dropped.output:
            self.response_ids.pop(item.id or "", None)

    def output_item(self, id: str, where: str, owner: str) -> InputItem:
        """Of a stored response. `where`: the id's path in the body. Raises ResponseNotFoundError."""
        found = self.responses.get(self.response_ids.get(id, ""))
        if found is None or found.owner != owner:
            advice = "send the item itself, and store false if you keep the conversation"
            text = f"{where}: no item {shown(id)} is stored; {advice}."
            raise ResponseNotFoundError(text, param="input", code="item_not_found")
        return next(item for item in found.output if item.id == id)


RESPONSES = web.AppKey("specserve_responses", ResponseStore)
