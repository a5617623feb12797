"""The answers of completions and chat, whole and as chunks of a stream."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from specserve.protocols import AnswerCheck
from specserve.types import FinishReason
from specserve_server.completions.logprobs import CompletionLogprobs


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    """`completion_tokens_details`: of models that reason before they answer."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | UnsetType = UNSET


class DrafterCounts(msgspec.Struct):
    num_accepted_draft_tokens: int
    num_draft_tokens: int


class PlannerCounts(msgspec.Struct):
    steps: dict[str, int]
    predicted_accepted_tokens: float


class SpeculationStatistics(msgspec.Struct):
    mean_acceptance_length: float
    draft_acceptance_rate: float
    acceptance_histogram: list[int]
    num_spec_steps: int
    num_accepted_draft_tokens: int
    num_draft_tokens: int
    drafters: dict[str, DrafterCounts] | UnsetType = UNSET
    planner: PlannerCounts | UnsetType = UNSET


class Metrics(msgspec.Struct):
    """Where drafts were verified."""

    speculative_decoding: SpeculationStatistics


class RankedLogprob(msgspec.Struct):
    logprob: float
    rank: int | None
    decoded_token: str


PromptLogprobs = list[dict[str, RankedLogprob] | None]
"""By position, then by token id; null for the first token."""


class ChoiceFields(msgspec.Struct, kw_only=True):
    """What a choice has in completions and chat, whole or in a chunk. The four lists: with return_token_ids."""

    index: int
    finish_reason: FinishReason | Literal["tool_calls"] | None
    stop_reason: str | int | None
    validation: AnswerCheck | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    accepted: list[bool] | UnsetType = UNSET
    drafted_by: list[str | None] | UnsetType = UNSET
    text_offset: list[int] | UnsetType = UNSET


class AnswerFields(msgspec.Struct, kw_only=True):
    id: str
    created: int
    model: str
    system_fingerprint: str
    service_tier: str
    metrics: Metrics | UnsetType = UNSET


class CompletionChoice(ChoiceFields, kw_only=True):
    text: str
    logprobs: CompletionLogprobs | None
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(AnswerFields, kw_only=True):
    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunk(AnswerFields, kw_only=True):
    """The chunk with the usage has no choices."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage | UnsetType = UNSET


class TokenLogprob(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int]


class ContentLogprob(TokenLogprob):
    top_logprobs: list[TokenLogprob]


class ChatLogprobs(msgspec.Struct):
    content: list[ContentLogprob]
    refusal: None


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


class ChatChoice(ChoiceFields, kw_only=True):
    message: AnswerMessage
    logprobs: ChatLogprobs | None


class ChatCompletion(AnswerFields, kw_only=True):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


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


class ChatChunkChoice(ChoiceFields, kw_only=True):
    delta: Delta
    logprobs: ChatLogprobs | None


class ChatCompletionChunk(AnswerFields, kw_only=True):
    """The chunk with the usage has no choices."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
