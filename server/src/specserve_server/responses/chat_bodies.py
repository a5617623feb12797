"""From a body of the Responses API, and the messages of its conversation, to a chat body."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Literal

from specserve_server.bodies.requests import ChatBody, Message
from specserve_server.bodies.structured import JsonSchemaFormat, ResponseFormat
from specserve_server.bodies.tools import ChosenFunction, Tool, ToolChoice
from specserve_server.responses.tools import all_served, served_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.responses import ResponsesBody, TextFormat


def to_chat_body(body: ResponsesBody, messages: Sequence[Message]) -> ChatBody:
    return ChatBody(
        model=body.model,
        messages=with_instructions(body.instructions, messages),
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        seed=body.seed,
        tools=tools_of(body),
        tool_choice=tool_choice_of(body),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=response_format_of(body.text.format if body.text else None),
        verbosity=body.text.verbosity if body.text else None,
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        cache_salt=body.cache_salt,
        priority=body.priority,
        speculation=body.speculation,
    )


def num_leading(messages: Sequence[Message]) -> int:
    """System messages at the beginning."""
    return len(list(takewhile(lambda message: message.role == "system", messages)))


def with_instructions(instructions: str | None, messages: Sequence[Message]) -> list[Message]:
    """Templates take one system message, the first: the instructions and the system messages at the beginning."""
    count = num_leading(messages)
    texts = [*filter(None, [instructions]), *(str(message.content) for message in messages[:count])]
    system = [Message(role="system", content="\n\n".join(texts))] if texts else []
    return [*system, *messages[count:]]


def tools_of(body: ResponsesBody) -> list[Tool] | None:
    return None if body.tools is None else [each.tool for each in all_served(body.tools, None)]


def tool_choice_of(body: ResponsesBody) -> ToolChoice | Literal["none", "auto", "required"] | None:
    choice = body.tool_choice
    if choice is None or isinstance(choice, str):
        return choice
    wanted = (choice.type, choice.name)
    names = [name for name, each in served_tools(body).items() if wanted in ((each.kind, each.name), (each.kind, name))]
    return ToolChoice(type="function", function=ChosenFunction(name=names[0] if names else choice.name or ""))


def response_format_of(given: TextFormat | None) -> ResponseFormat | None:
    if given is None:
        return None
    named = JsonSchemaFormat(name=given.name, description=given.description, schema=given.schema, strict=given.strict)
    return ResponseFormat(type=given.type, json_schema=named if given.type == "json_schema" else None)
