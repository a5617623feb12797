"""The bodies of POST /v1/messages and /v1/messages/count_tokens: name, type and limit of every field.

Fields of the API that are not here change no answer; those that would are refused in `refusals`.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve.limits import MAX_INT32, MAX_SEED, MIN_SEED
from specserve_server.bodies.requests import ReasoningEffort, Speculation, Texts
from specserve_server.bodies.tools import Name
from specserve_server.limits import MAX_CACHE_SALT_LENGTH, MAX_MESSAGES, MAX_TOOLS


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Text, thoughts, a use of a tool, its result, or a tool that was found: `type` says which."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    tool_use_id: str | None = None
    tool_name: str | None = None
    content: str | list[Block] | None = None
    is_error: bool | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    role: str
    content: str | list[Block]


class ClientTool(msgspec.Struct, frozen=True, kw_only=True):
    """`strict`: arguments follow the schema even where calling the tool is the model's choice."""

    name: Name
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    strict: bool | None = None


class ChosenTool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["enabled", "adaptive", "disabled"]


class OutputFormat(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["json_schema"]
    schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class OutputConfig(msgspec.Struct, frozen=True, kw_only=True):
    effort: ReasoningEffort | None = None
    format: OutputFormat | None = None


class ContextEdit(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    keep: str = ""


class ContextManagement(msgspec.Struct, frozen=True, kw_only=True):
    edits: list[ContextEdit] = []


class CountTokensBody(msgspec.Struct, frozen=True, kw_only=True):
    """POST /v1/messages/count_tokens: what makes the prompt."""

    model: str | None = None
    system: str | list[Block] | None = None
    messages: Annotated[list[Turn], Meta(max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[ClientTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ChosenTool | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    mcp_servers: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    container: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    context_management: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)


class MessagesBody(CountTokensBody, frozen=True, kw_only=True):
    """POST /v1/messages. The last four fields are extensions, as in chat."""

    max_tokens: Annotated[int, Meta(ge=1, le=MAX_INT32)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_INT32)] | None = None
    stop_sequences: Texts | None = None
    stream: bool | None = None
    seed: Annotated[int, Meta(ge=MIN_SEED, le=MAX_SEED)] | None = None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=MAX_CACHE_SALT_LENGTH)] | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT32, le=MAX_INT32)] | None = None
    speculation: Speculation | None = None
