"""The items of an output while they grow: reasoning, a message or a call of a function; and the events between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias
from uuid import uuid4

from specserve_server.chat.tool_response import new_call_id
from specserve_server.responses.tools import custom_input

if TYPE_CHECKING:
    from specserve_checks.json_types import JsonObject
    from specserve_server.responses.tools import ServedTool

OutputItem: TypeAlias = "ReasoningItem | MessageItem | CallItem"


class Event(NamedTuple):
    """Its type, and the fields that belong to it alone."""

    type: str
    fields: JsonObject


class TextItem:
    """`part_type` is that of its one part, and names its events; the others are fields beside its text and those of the
    item, of the part and of the events."""

    prefix: ClassVar[str]
    type: ClassVar[str]
    part_type: ClassVar[str]
    fields: ClassVar[JsonObject] = {}
    part_fields: ClassVar[JsonObject] = {}
    event_fields: ClassVar[JsonObject] = {}

    def __init__(self) -> None:
        self.id = f"{self.prefix}_{uuid4().hex}"
        self.texts: list[str] = []

    def as_json(self, status: str) -> JsonObject:
        content = [] if status == "in_progress" else [self.part()]
        return {"id": self.id, "type": self.type, "status": status, **self.fields, "content": content}

    def part(self) -> JsonObject:
        return {"type": self.part_type, "text": "".join(self.texts), **self.part_fields}

    def opening(self) -> list[Event]:
        return [Event("response.content_part.added", {"content_index": 0, "part": self.part()})]

    def add(self, text: str) -> list[Event]:
        self.texts.append(text)
        delta: JsonObject = {"content_index": 0, "delta": text, **self.event_fields}
        return [Event(f"response.{self.part_type}.delta", delta)]

    def closing(self) -> list[Event]:
        part = self.part()
        done: JsonObject = {"content_index": 0, "text": part["text"], **self.event_fields}
        return [
            Event(f"response.{self.part_type}.done", done),
            Event("response.content_part.done", {"content_index": 0, "part": part}),
        ]


class ReasoningItem(TextItem):
    """The text itself: it is not summarized."""

    prefix, type, part_type = "rs", "reasoning", "reasoning_text"
    fields: ClassVar[JsonObject] = {"summary": []}


class MessageItem(TextItem):
    prefix, type, part_type = "msg", "message", "output_text"
    fields: ClassVar[JsonObject] = {"role": "assistant"}
    part_fields: ClassVar[JsonObject] = {"annotations": [], "logprobs": []}
    event_fields: ClassVar[JsonObject] = {"logprobs": []}


class CallItem:
    prefix: ClassVar[str] = "fc"

    def __init__(self, name: str, namespace: str | None) -> None:
        self.id = f"{self.prefix}_{uuid4().hex}"
        self.call_id = new_call_id()
        self.name = name
        self.namespace = namespace
        self.pieces: list[str] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    def called(self) -> JsonObject:
        fields: JsonObject = {"call_id": self.call_id, "name": self.name}
        return fields if self.namespace is None else {**fields, "namespace": self.namespace}

    def as_json(self, status: str) -> JsonObject:
        shown: JsonObject = {**self.called(), "arguments": self.arguments}
        return {"id": self.id, "type": "function_call", "status": status, **shown}

    def opening(self) -> list[Event]:
        return []

    def add(self, text: str) -> list[Event]:
        self.pieces.append(text)
        return [Event("response.function_call_arguments.delta", {"delta": text})]

    def closing(self) -> list[Event]:
        done: JsonObject = {"name": self.name, "arguments": self.arguments}
        return [Event("response.function_call_arguments.done", done)]


class CustomCallItem(CallItem):
    """Its input is known once its arguments are whole."""

    prefix = "ctc"

    def as_json(self, status: str) -> JsonObject:
        shown: JsonObject = {**self.called(), "input": custom_input(self.arguments)}
        return {"id": self.id, "type": "custom_tool_call", "status": status, **shown}

    def add(self, text: str) -> list[Event]:
        self.pieces.append(text)
        return []

    def closing(self) -> list[Event]:
        text, kind = custom_input(self.arguments), "response.custom_tool_call_input"
        return [Event(f"{kind}.delta", {"delta": text}), Event(f"{kind}.done", {"input": text})]


def call_item(served: ServedTool) -> CallItem:
    kind = CustomCallItem if served.kind == "custom" else CallItem
    return kind(served.name, served.namespace)
