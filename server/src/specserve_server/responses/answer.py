"""The answers of the Responses API, whole and as events. Their schemas in /openapi.json come from here."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from specserve.protocols import AnswerCheck
from specserve_server.bodies.requests import ReasoningEffort
from specserve_server.bodies.responses import FunctionChoice
from specserve_server.generation.speculation_metrics import Metrics
from specserve_server.operation import OneOfSubclasses

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, tag="output_text"):
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class ReasoningText(msgspec.Struct, tag="reasoning_text"):
    text: str


OutputPart: TypeAlias = OutputText | ReasoningText


class OutputItem(OneOfSubclasses, kw_only=True):
    """`type` tells which kind."""

    id: str
    type: str
    status: ItemStatus


class OutputReasoning(OutputItem, kw_only=True):
    """What a model thinks before it answers."""

    type: Literal["reasoning"]
    summary: list[Any]
    content: list[ReasoningText]


class OutputMessage(OutputItem, kw_only=True):
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[OutputText]


class OutputCall(OutputItem, kw_only=True):
    """`namespace`: of the tool, where it has one. `arguments`: JSON text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    arguments: str


class OutputCustomCall(OutputItem, kw_only=True):
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: str | UnsetType = UNSET
    input: str


class ResponseFailure(msgspec.Struct):
    code: str
    message: str


class IncompleteDetails(msgspec.Struct):
    reason: Literal["max_output_tokens"]


class AnswerReasoning(msgspec.Struct):
    effort: ReasoningEffort | None
    summary: None


class AnswerText(msgspec.Struct):
    format: dict[str, Any]
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
    """What the request asked for, what was chosen for it, and the output. `warnings`: of tools that are left out."""

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
    tool_choice: str | FunctionChoice
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["auto", "disabled"]
    user: str | None
    usage: ResponseUsage | None
    warnings: list[str] | UnsetType = UNSET
    validation: AnswerCheck | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET
    output: list[OutputItem]


class ResponseDeleted(msgspec.Struct):
    id: str
    object: Literal["response"]
    deleted: bool
