"""From an answer to the events of a response, numbered, and to the response itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from specserve_server.generation.speculation_metrics import speculation_metrics
from specserve_server.responses.answer import IncompleteDetails, ResponseFailure
from specserve_server.responses.events import ItemEvent, ResponseEvent
from specserve_server.responses.output_items import CallItem, CustomCallItem, MessageItem, ReasoningItem
from specserve_server.responses.response_object import response_usage
from specserve_server.serving.answers import ReasoningPiece

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from specserve_server.errors import ErrorResponse
    from specserve_server.generation.choices import Choice
    from specserve_server.responses.answer import ItemStatus, Response
    from specserve_server.responses.output_items import GrowingItem
    from specserve_server.responses.tools import ServedTool
    from specserve_server.serving.answers import NamedEvent, Piece


@dataclass(slots=True)
class ResponseWriter:
    """An `AnswerWriter`. `response` has its final fields in `end`; `keep` gets it then."""

    response: Response
    choice: Choice
    keep: Callable[[Response], None]
    tools: Mapping[str, ServedTool]
    """By the names that the model knows."""
    item: GrowingItem | None = None
    numbers: Iterator[int] = field(default_factory=count)
    """Of the events."""

    def begin(self) -> Iterator[NamedEvent]:
        yield ResponseEvent("response.created", next(self.numbers), self.response)
        yield ResponseEvent("response.in_progress", next(self.numbers), self.response)

    def add(self, piece: Piece, /) -> Iterator[NamedEvent]:
        if isinstance(piece, str | ReasoningPiece):
            kind, text = (MessageItem, piece) if isinstance(piece, str) else (ReasoningItem, piece.text)
            if not isinstance(self.item, kind):
                yield from self.close("completed")
                yield from self.open(kind(*self.place()))
            yield from self.of_item(text)
            return
        if piece.name is not None:
            tool = self.tools[piece.name]
            yield from self.close("completed")
            yield from self.open((CustomCallItem if tool.kind == "custom" else CallItem)(*self.place(), tool))
        if piece.arguments:
            yield from self.of_item(piece.arguments)

    def end(self) -> Iterator[NamedEvent]:
        is_whole, response = self.choice.finish_reason != "length", self.response
        if self.item is None:
            yield from self.open(MessageItem(*self.place()))  # an answer without text is an empty message
        yield from self.close("completed" if is_whole else "incomplete")
        response.usage = response_usage(self.choice)
        response.validation, response.metrics = self.choice.check, speculation_metrics([self.choice])
        if is_whole:
            response.status, response.completed_at = "completed", int(time.time())
        else:
            response.status, response.incomplete_details = "incomplete", IncompleteDetails("max_output_tokens")
        self.keep(response)
        number = next(self.numbers)
        yield ResponseEvent("response.completed" if is_whole else "response.incomplete", number, response)

    def fail(self, error: ErrorResponse, /) -> ResponseEvent:
        self.response.status = "failed"
        self.response.error = ResponseFailure("server_error", error.body.error.message)
        return ResponseEvent("response.failed", next(self.numbers), self.response)

    def body(self) -> Response:
        return self.response

    def place(self) -> tuple[int, Iterator[int]]:
        """Of the next item."""
        return len(self.response.output), self.numbers

    def open(self, item: GrowingItem) -> Iterator[NamedEvent]:
        self.item = item
        added = item.shown("in_progress")
        yield ItemEvent("response.output_item.added", next(self.numbers), item.output_index, added)
        yield from item.opening()

    def of_item(self, text: str) -> Iterator[NamedEvent]:
        assert self.item is not None
        yield from self.item.add(text)

    def close(self, status: ItemStatus) -> Iterator[NamedEvent]:
        item, self.item = self.item, None
        if item is None:
            return
        yield from item.closing()
        done = item.shown(status)
        yield ItemEvent("response.output_item.done", next(self.numbers), item.output_index, done)
        self.response.output.append(done)
