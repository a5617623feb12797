"""The bodies of requests, as msgspec Structs: name, type and limit of every field.

Every field may be missing or null; `read_body` decides about fields that the Structs lack. Ranges that depend on the
model are checked by the engine. The names and docstrings of the Structs are part of /openapi.json.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.limits import (
    MAX_BAD_WORDS,
    MAX_CONFIGURED_LOGPROBS,
    MAX_DRAFT_TOKENS,
    MAX_DRAFTERS,
    MAX_INT32,
    MAX_LOGIT_BIASES,
    MAX_SEED,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
    MAX_STRING_LENGTH,
    MIN_SEED,
)
from specserve_server.bodies.structured import Choices, ResponseFormat, StructuredOutputs
from specserve_server.bodies.tools import ToolCalls, ToolChoice, Tools
from specserve_server.limits import (
    MAX_CACHE_SALT_LENGTH,
    MAX_DOCUMENTS,
    MAX_MESSAGES,
    MAX_N,
    MAX_REQUEST_ID_LENGTH,
)

Count = Annotated[int, Meta(ge=0, le=MAX_INT32)]
Logprobs = Annotated[int, Meta(ge=0, le=MAX_CONFIGURED_LOGPROBS)]
TokenIds = list[Count]
Text = Annotated[str, Meta(max_length=MAX_STRING_LENGTH)]
Texts = Annotated[list[Text], Meta(max_length=MAX_STOP_STRINGS)]


class StreamOptions(msgspec.Struct, frozen=True, kw_only=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """An extension of specserve: per-request control of speculation."""

    enabled: bool | None = None
    max_draft_tokens: Annotated[int, Meta(ge=0, le=MAX_DRAFT_TOKENS)] | None = None
    drafters: Annotated[list[Text], Meta(max_length=MAX_DRAFTERS)] | None = None


class SamplingBody(msgspec.Struct, frozen=True, kw_only=True):
    """What completions and chat share."""

    model: str | None = None
    request_id: Annotated[str, Meta(min_length=1, max_length=MAX_REQUEST_ID_LENGTH)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_N)] | None = None
    best_of: Count | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    min_tokens: Count | None = None
    temperature: float | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT32)] | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: Annotated[int, Meta(ge=MIN_SEED, le=MAX_SEED)] | None = None
    stop: Text | Texts | None = None
    stop_token_ids: Annotated[TokenIds, Meta(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    ignore_eos: bool | None = None
    logit_bias: Annotated[dict[str, float], Meta(max_length=MAX_LOGIT_BIASES)] | None = None
    allowed_token_ids: Annotated[TokenIds, Meta(min_length=1)] | None = None
    bad_words: Annotated[list[Text], Meta(max_length=MAX_BAD_WORDS)] | None = None
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=MAX_INT32)] | None = None
    prompt_logprobs: Logprobs | None = None
    return_token_ids: bool | None = None
    return_speculation: bool | None = None
    add_special_tokens: bool | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT32, le=MAX_INT32)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=MAX_CACHE_SALT_LENGTH)] | None = None
    speculation: Speculation | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None

    @property
    def num_choices(self) -> int:
        """Of each prompt."""
        return self.n or 1

    @property
    def returns_every_token(self) -> bool:
        """Whether a step is told of whose text has to wait."""
        return bool(self.return_token_ids or self.return_speculation)


class CompletionBody(SamplingBody, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | Count | TokenIds] | None = None
    echo: bool | None = None
    logprobs: Logprobs | None = None


class ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    type: str | None = None
    text: str | None = None


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """`function_call`, `audio`, `prefix` and `partial` are refused."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: ToolCalls | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    function_call: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    audio: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    prefix: bool | None = None
    partial: bool | None = None


Messages = Annotated[list[Message], Meta(max_length=MAX_MESSAGES)]
Documents = Annotated[list[dict[str, str]], Meta(max_length=MAX_DOCUMENTS)]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]


class ChatBody(SamplingBody, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: Messages | None = None
    logprobs: bool | None = None
    top_logprobs: Logprobs | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    documents: Documents | None = None
    reasoning_effort: ReasoningEffort | None = None
    verbosity: Verbosity | None = None
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    documents: Documents | None = None
    reasoning_effort: ReasoningEffort | None = None
    verbosity: Verbosity | None = None
    tools: Tools | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: TokenIds | None = None
