"""The fields of a chat body that offer tools and report their calls. Schemas and arguments stay JSON text."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from specserve_server.limits import MAX_TOOL_CALLS, MAX_TOOLS

NAME_RULE = "a name of 1 to 64 letters, digits, points, hyphens and underscores"
Name = Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{1,64}$", description=NAME_RULE)]


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """`parameters`: a JSON schema. `strict`: arguments follow it even where calling a tool is the model's choice."""

    name: Name
    description: str | None = None
    parameters: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    strict: bool | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    function: Function


class ChosenFunction(msgspec.Struct, frozen=True, kw_only=True):
    name: Name


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The one tool that must be called."""

    type: Literal["function"]
    function: ChosenFunction


JsonText = Annotated[str, Meta(description='a string of JSON, such as "{}"')]


class CalledFunction(msgspec.Struct, frozen=True, kw_only=True):
    """`arguments`: as OpenAI writes them."""

    name: Annotated[str, Meta(min_length=1)]
    arguments: JsonText | None = None


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """Of an earlier message of the assistant."""

    id: str | None = None
    type: Literal["function"] | None = None
    function: CalledFunction


Tools = Annotated[list[Tool], Meta(max_length=MAX_TOOLS)]
ToolCalls = Annotated[list[ToolCall], Meta(max_length=MAX_TOOL_CALLS)]
