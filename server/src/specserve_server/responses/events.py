"""The events of a streamed response. Their schemas in /openapi.json come from here."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from specserve_server.responses.answer import OutputItem, OutputPart, Response


class ResponseEvent(msgspec.Struct):
    """The response so far, or the whole one."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    sequence_number: int
    response: Response


class ItemEvent(msgspec.Struct):
    type: Literal["response.output_item.added", "response.output_item.done"]
    sequence_number: int
    output_index: int
    item: OutputItem


class EventInItem(msgspec.Struct):
    """What every event between those of an item begins with."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int


class PartEvent(EventInItem):
    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: int
    part: OutputPart


class ReasoningDeltaEvent(EventInItem):
    type: Literal["response.reasoning_text.delta"]
    content_index: int
    delta: str


class ReasoningDoneEvent(EventInItem):
    type: Literal["response.reasoning_text.done"]
    content_index: int
    text: str


class TextDeltaEvent(EventInItem):
    type: Literal["response.output_text.delta"]
    content_index: int
    delta: str
    logprobs: list[Any]


class TextDoneEvent(EventInItem):
    type: Literal["response.output_text.done"]
    content_index: int
    text: str
    logprobs: list[Any]


class ArgumentsDeltaEvent(EventInItem):
    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsDoneEvent(EventInItem):
    type: Literal["response.function_call_arguments.done"]
    name: str
    arguments: str


class CustomInputDeltaEvent(EventInItem):
    type: Literal["response.custom_tool_call_input.delta"]
    delta: str


class CustomInputDoneEvent(EventInItem):
    type: Literal["response.custom_tool_call_input.done"]
    input: str


RESPONSE_EVENTS = (ResponseEvent, ItemEvent, *EventInItem.__subclasses__())
