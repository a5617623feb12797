"""The answers of the Responses API, whole and as events."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from specserve.protocols import AnswerCheck
from specserve_server.bodies.requests import ReasoningEffort
from specserve_server.generation.speculation_metrics import Metrics

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, tag="output_text"):
    text: str
    annotations: list[Raw]
    logprobs: list[Raw]


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    text: str


class OutputReasoning(msgspec.Struct, tag="reasoning"):
    """What a model thinks before it answers."""

    id: str
    status: ItemStatus
    summary: list[Raw]
    content: list[ReasoningText]


class OutputMessage(msgspec.Struct, tag="message"):
    id: str
    status: ItemStatus
    role: Literal["assistant"]
    content: list[OutputText]


class OutputCall(msgspec.Struct, tag="function_call"):
    """`arguments`: JSON text."""

    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str


class ResponseFailure(msgspec.Struct):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens"]


class AnswerReasoning(msgspec.Struct):
    effort: ReasoningEffort | None
    summary: None


class AnswerText(msgspec.Struct):
    format: dict[str, Raw]
    verbosity: str


class InputTokensDetails(msgspec.Struct):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class Response(msgspec.Struct, kw_only=True):
    """What the request asked for, what was chosen for it, and the output."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: bool
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    model: str
    service_tier: str
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: AnswerReasoning
    store: bool
    temperature: float
    text: AnswerText
    tool_choice: str | dict[str, Raw]
    tools: list[dict[str, Raw]]
    top_p: float
    truncation: Literal["auto", "disabled"]
    user: str | None
    output: list[OutputReasoning | OutputMessage | OutputCall]
    usage: ResponseUsage | None
    validation: AnswerCheck | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class NumberedEvent(msgspec.Struct, kw_only=True):
    sequence_number: int


class ResponseEvent(NumberedEvent, kw_only=True):
    """The response so far, or the whole one."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: Response


class ItemEvent(NumberedEvent, kw_only=True):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputReasoning | OutputMessage | OutputCall


class PartEvent(NumberedEvent, kw_only=True):
    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: int
    part: OutputText | ReasoningText


class ReasoningDeltaEvent(NumberedEvent, kw_only=True):
    type: Literal["response.reasoning_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str


class ReasoningDoneEvent(NumberedEvent, kw_only=True):
    type: Literal["response.reasoning_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str


class TextDeltaEvent(NumberedEvent, kw_only=True):
    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[Raw]


class TextDoneEvent(NumberedEvent, kw_only=True):
    type: Literal["response.output_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[Raw]


class ArgumentsDeltaEvent(NumberedEvent, kw_only=True):
    type: Literal["response.function_call_arguments.delta"]
    item_id: str
    output_index: int
    delta: str


class ArgumentsDoneEvent(NumberedEvent, kw_only=True):
    type: Literal["response.function_call_arguments.done"]
    item_id: str
    output_index: int
    name: str
    arguments: str


RESPONSE_EVENTS = (
    ResponseEvent,
    ItemEvent,
    PartEvent,
    ReasoningDeltaEvent,
    ReasoningDoneEvent,
    TextDeltaEvent,
    TextDoneEvent,
    ArgumentsDeltaEvent,
    ArgumentsDoneEvent,
)
