"""From a body of the Messages API to a chat body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from specserve_server.bodies.requests import ChatBody
from specserve_server.bodies.structured import JsonSchemaFormat, ResponseFormat
from specserve_server.bodies.tools import ChosenFunction, Function, Tool, ToolChoice

if TYPE_CHECKING:
    from specserve_server.bodies.messages import CountTokensBody, MessagesBody
    from specserve_server.bodies.requests import Message, ReasoningEffort


def to_chat_body(body: MessagesBody, messages: list[Message], effort: ReasoningEffort | None) -> ChatBody:
    choice = body.tool_choice
    return ChatBody(
        model=body.model,
        messages=messages,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        stop=body.stop_sequences,
        seed=body.seed,
        tools=tools_of(body),
        tool_choice=tool_choice_of(body),
        parallel_tool_calls=False if choice is not None and choice.disable_parallel_tool_use else None,
        response_format=response_format_of(body),
        reasoning_effort=effort,
        cache_salt=body.cache_salt,
        priority=body.priority,
        speculation=body.speculation,
    )


def tools_of(body: CountTokensBody) -> list[Tool] | None:
    if body.tools is None:
        return None
    return [
        Tool(
            type="function",
            function=Function(
                name=tool.name,
                description=tool.description,
                parameters=tool.input_schema,
                strict=tool.strict,
            ),
        )
        for tool in body.tools
    ]


def tool_choice_of(body: CountTokensBody) -> ToolChoice | Literal["none", "auto", "required"] | None:
    choice = body.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        return ToolChoice(type="function", function=ChosenFunction(name=choice.name or ""))
    return "required" if choice.type == "any" else choice.type


def response_format_of(body: CountTokensBody) -> ResponseFormat | None:
    given = body.output_config.format if body.output_config else None
    if given is None:
        return None
    return ResponseFormat(type="json_schema", json_schema=JsonSchemaFormat(schema=given.schema))
