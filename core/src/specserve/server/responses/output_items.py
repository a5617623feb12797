"""The items of an output while they grow: reasoning, a message or a call of a function; and the events between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias
from uuid import uuid4

from specserve.server.tools.response import new_call_id

if TYPE_CHECKING:
    from specserve.json_types import JsonObject

OutputItem: TypeAlias = "ReasoningItem | MessageItem | CallItem"


class Event(NamedTuple):
    """Its type, and the fields that belong to it alone."""

    type: str
    fields: JsonObject


class ReasoningItem:
    """The text itself: it is not summarized."""

    def __init__(self) -> None:
        self.id = f"rs_{uuid4().hex}"
        self.texts: list[str] = []

    def as_json(self, status: str) -> JsonObject:
        content = [] if status == "in_progress" else [self.part()]
        return {"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content}

    def part(self) -> JsonObject:
        return {"type": "reasoning_text", "text": "".join(self.texts)}

    def opening(self) -> list[Event]:
        return [Event("response.content_part.added", {"content_index": 0, "part": self.part()})]

    def add(self, text: str) -> Event:
        self.texts.append(text)
        return Event("response.reasoning_text.delta", {"content_index": 0, "delta": text})

    def closing(self) -> list[Event]:
        part = self.part()
        return [
            Event("response.reasoning_text.done", {"content_index": 0, "text": part["text"]}),
            Event("response.content_part.done", {"content_index": 0, "part": part}),
        ]


class MessageItem:
    def __init__(self) -> None:
        self.id = f"msg_{uuid4().hex}"
        self.texts: list[str] = []

    def as_json(self, status: str) -> JsonObject:
        content = [] if status == "in_progress" else [self.part()]
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def part(self) -> JsonObject:
        return {"type": "output_text", "text": "".join(self.texts), "annotations": [], "logprobs": []}

    def opening(self) -> list[Event]:
        return [Event("response.content_part.added", {"content_index": 0, "part": self.part()})]

    def add(self, text: str) -> Event:
        self.texts.append(text)
        return Event("response.output_text.delta", {"content_index": 0, "delta": text, "logprobs": []})

    def closing(self) -> list[Event]:
        part = self.part()
        done: JsonObject = {"content_index": 0, "text": part["text"], "logprobs": []}
        return [
            Event("response.output_text.done", done),
            Event("response.content_part.done", {"content_index": 0, "part": part}),
        ]


class CallItem:
    def __init__(self, name: str) -> None:
        self.id = f"fc_{uuid4().hex}"
        self.call_id = new_call_id()
        self.name = name
        self.pieces: list[str] = []

    def as_json(self, status: str) -> JsonObject:
        arguments = "".join(self.pieces)
        called: JsonObject = {"call_id": self.call_id, "name": self.name, "arguments": arguments}
        return {"id": self.id, "type": "function_call", "status": status, **called}

    def opening(self) -> list[Event]:
        return []

    def add(self, text: str) -> Event:
        self.pieces.append(text)
        return Event("response.function_call_arguments.delta", {"delta": text})

    def closing(self) -> list[Event]:
        done: JsonObject = {"name": self.name, "arguments": "".join(self.pieces)}
        return [Event("response.function_call_arguments.done", done)]
