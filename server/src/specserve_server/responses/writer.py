"""The events of a response, numbered, and the response itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve_server.generation.speculation_metrics import figures
from specserve_server.responses.output_items import MessageItem, ReasoningItem, call_item
from specserve_server.responses.response_object import response_usage
from specserve_server.serving.answers import ReasoningPiece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from specserve_checks.json_types import JsonObject, JsonValue
    from specserve_server.errors import ErrorResponse
    from specserve_server.generation.choices import Choice
    from specserve_server.responses.output_items import OutputItem
    from specserve_server.responses.tools import ServedTool
    from specserve_server.serving.answers import Piece


@dataclass(slots=True)
class ResponseWriter:
    """An `AnswerWriter`. `response` has its final fields in `end`; `keep` gets it then."""

    response: JsonObject
    choice: Choice
    keep: Callable[[JsonObject], None]
    tools: Mapping[str, ServedTool]
    """By the names that the model knows."""
    output: list[JsonValue] = field(default_factory=list)
    item: OutputItem | None = None
    num_events: int = 0

    def begin(self) -> Iterator[JsonObject]:
        yield self.event("response.created", response=self.body())
        yield self.event("response.in_progress", response=self.body())

    def add(self, piece: Piece, /) -> Iterator[JsonObject]:
        if isinstance(piece, str | ReasoningPiece):
            kind, text = (MessageItem, piece) if isinstance(piece, str) else (ReasoningItem, piece.text)
            if not isinstance(self.item, kind):
                yield from self.close("completed")
                yield from self.open(kind())
            yield from self.of_item(text)
            return
        if piece.name is not None:
            yield from self.close("completed")
            yield from self.open(call_item(self.tools[piece.name]))
        if piece.arguments:
            yield from self.of_item(piece.arguments)

    def end(self) -> Iterator[JsonObject]:
        status = "incomplete" if self.choice.finish_reason == "length" else "completed"
        if self.item is None:
            yield from self.open(MessageItem())  # an answer without text is an empty message
        yield from self.close(status)
        self.response |= {"status": status, "usage": response_usage(self.choice)}
        self.response |= figures(self.choice)
        if status == "incomplete":
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            self.response["completed_at"] = int(time.time())
        self.keep(self.body())
        yield self.event(f"response.{status}", response=self.body())

    def fail(self, error: ErrorResponse, /) -> JsonObject:
        described = error.body["error"]
        assert isinstance(described, dict)
        self.response |= {"status": "failed", "error": {"code": "server_error", "message": described["message"]}}
        return self.event("response.failed", response=self.body())

    def body(self) -> JsonObject:
        return {**self.response, "output": list(self.output)}

    def open(self, item: OutputItem) -> Iterator[JsonObject]:
        self.item = item
        added: JsonObject = {"output_index": len(self.output), "item": item.as_json("in_progress")}
        yield self.event("response.output_item.added", **added)
        for type, fields in item.opening():
            yield self.event(type, item_id=item.id, output_index=len(self.output), **fields)

    def of_item(self, text: str) -> Iterator[JsonObject]:
        assert self.item is not None
        for type, fields in self.item.add(text):
            yield self.event(type, item_id=self.item.id, output_index=len(self.output), **fields)

    def close(self, status: str) -> Iterator[JsonObject]:
        item, self.item = self.item, None
        if item is None:
            return
        for type, fields in item.closing():
            yield self.event(type, item_id=item.id, output_index=len(self.output), **fields)
        done = item.as_json(status)
        yield self.event("response.output_item.done", output_index=len(self.output), item=done)
        self.output.append(done)

    def event(self, type: str, **fields: JsonValue) -> JsonObject:
        self.num_events += 1
        return {"type": type, "sequence_number": self.num_events - 1, **fields}
