"""The body of POST /v1/responses: name, type and limit of every field.

Fields of the API that are not here change no answer, or are not served and refused in `refusals`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.limits import MAX_INT32, MAX_SEED, MIN_SEED
from specserve_server.bodies.requests import ReasoningEffort, Speculation, Verbosity
from specserve_server.bodies.tools import Name
from specserve_server.limits import (
    MAX_CACHE_SALT_LENGTH,
    MAX_MESSAGES,
    MAX_METADATA,
    MAX_METADATA_KEY,
    MAX_METADATA_VALUE,
    MAX_TOOLS,
)

TEXT_PARTS = ("input_text", "output_text", "text")
REASONING_PARTS = ("reasoning_text",)
CALLS, RESULTS = ("function_call", "custom_tool_call"), ("function_call_output", "custom_tool_call_output")
ITEM_TYPES = ("message", "reasoning", *CALLS, *RESULTS, "item_reference")
TOOL_TYPES = ("function", "custom", "namespace")
"""What is served of each."""


class InputPart(msgspec.Struct, frozen=True, kw_only=True):
    type: str | None = None
    text: str | None = None


class InputItem(msgspec.Struct, frozen=True, kw_only=True):
    """A message, reasoning, a call of a tool, what a tool returned, or the id of a stored item: `type` says which."""

    type: str | None = None
    id: str | None = None
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    summary: list[InputPart] | None = None
    output: str | list[InputPart] | None = None


class FunctionTool(msgspec.Struct, frozen=True, kw_only=True):
    """A function, a custom tool whose input is text, or a namespace of such tools."""

    type: str
    name: Name | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    strict: bool | None = None
    format: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    tools: Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)] | None = None


class FunctionChoice(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    name: Name | None = None


class TextFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"] | None = None
    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    strict: bool | None = None


class TextOptions(msgspec.Struct, frozen=True, kw_only=True):
    format: TextFormat | None = None
    verbosity: Verbosity | None = None


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    effort: ReasoningEffort | None = None


MetadataKey = Annotated[str, Meta(max_length=MAX_METADATA_KEY)]
MetadataValue = Annotated[str, Meta(max_length=MAX_METADATA_VALUE)]
Metadata = Annotated[dict[MetadataKey, MetadataValue], Meta(max_length=MAX_METADATA)]


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/responses. The last five fields are extensions, as in chat."""

    model: str | None = None
    input: str | Annotated[list[InputItem], Meta(max_length=MAX_MESSAGES)] | None = None
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=MAX_INT32)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    stream: bool | None = None
    tools: Annotated[list[FunctionTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    metadata: Metadata | None = None
    user: str | None = None
    reasoning: Reasoning | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    background: bool | None = None
    conversation: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    prompt: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    context_management: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    moderation: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT32)] | None = None
    seed: Annotated[int, Meta(ge=MIN_SEED, le=MAX_SEED)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=MAX_CACHE_SALT_LENGTH)] | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT32, le=MAX_INT32)] | None = None
    speculation: Speculation | None = None
