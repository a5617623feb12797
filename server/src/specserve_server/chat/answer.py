"""The body of a chat completion, and the chunks of a streamed one. Their schemas in /openapi.json come from here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from specserve.protocols import AnswerCheck
from specserve.types import FinishReason
from specserve_server.generation.answer_fields import AnswerFields
from specserve_server.generation.logprobs import ChatLogprobs, PromptLogprobs
from specserve_server.generation.speculation_metrics import Metrics
from specserve_server.generation.speculation_steps import SpeculationSteps
from specserve_server.generation.usage import Usage

ChatFinishReason: TypeAlias = FinishReason | Literal["tool_calls"]


class AnsweredFunction(msgspec.Struct):
    """`arguments`: JSON text."""

    name: str
    arguments: str


class AnsweredCall(msgspec.Struct):
    id: str
    type: Literal["function"]
    function: AnsweredFunction


class AnswerMessage(msgspec.Struct, kw_only=True):
    """`reasoning`, and `reasoning_content` with the same text: of models that reason before they answer."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[AnsweredCall] | UnsetType = UNSET


class FunctionDelta(msgspec.Struct, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class CallDelta(msgspec.Struct, kw_only=True):
    """Id, type and name come with the first delta of a call."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(msgspec.Struct, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallDelta] | UnsetType = UNSET


class ChatChoiceFields(msgspec.Struct):
    """`content` is called `message` in a whole answer, and `delta` in a chunk."""

    index: int
    content: AnswerMessage | Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinishReason | None
    stop_reason: str | int | None
    validation: AnswerCheck | UnsetType = UNSET
    token_ids: Sequence[int] | UnsetType = UNSET
    accepted: Sequence[bool] | UnsetType = UNSET
    drafted_by: Sequence[str | None] | UnsetType = UNSET
    text_offset: list[int] | UnsetType = UNSET
    speculation: SpeculationSteps | UnsetType = UNSET


class ChatChoice(ChatChoiceFields, rename={"content": "message"}):
    """The four lists: with return_token_ids. `speculation`: with return_speculation."""

    content: AnswerMessage


class ChatChunkChoice(ChatChoiceFields, rename={"content": "delta"}):
    """The four lists: with return_token_ids. `speculation`: with return_speculation."""

    content: Delta


class ChatCompletion(AnswerFields):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET


class ChatCompletionChunk(AnswerFields):
    """The chunk with the usage has no choices."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    prompt_token_ids: Sequence[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    metrics: Metrics | UnsetType = UNSET
