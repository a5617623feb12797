"""From the messages of a chat to the token ids of its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.server.engine_client import ServerTokenizer
    from specserve.server.request_bodies import Message
    from specserve.server.tools.bodies import Tool, ToolCall


def encode_messages(
    tokenizer: ServerTokenizer,
    messages: list[Message] | None,
    *,
    tools: Sequence[Tool] = (),
    add_generation_prompt: bool,
) -> list[int]:
    """The template writes the special tokens itself."""
    if not messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    rendered = tokenizer.render_chat(
        [template_message(message) for message in messages],
        tools=[template_tool(tool) for tool in tools],
        add_generation_prompt=add_generation_prompt,
    )
    return tokenizer.encode(rendered, add_special_tokens=False)


def template_message(message: Message) -> dict[str, object]:
    """A message as chat templates read it; text parts are joined, and the arguments of tool calls are objects."""
    content = message.content
    if isinstance(content, list):
        for part in content:
            if part.type != "text":
                raise RequestError(f"only text content is served; got a part of type {part.type!r}.", param="messages")
            if part.text is None:
                raise RequestError("a content part of type text needs a text.", param="messages")
        content = "\n".join(part.text or "" for part in content)
    found: dict[str, object] = {"role": message.role, "content": content or ""}
    if message.name is not None:
        found["name"] = message.name
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        found["tool_calls"] = [template_call(call) for call in message.tool_calls]
    return found


def template_call(call: ToolCall) -> dict[str, object]:
    function = call.function
    try:
        arguments = msgspec.json.decode(function.arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        text = f"the arguments of the call of {function.name!r} are not valid JSON"
        raise RequestError(f"messages: {text}; send them as the answer had them.", param="messages") from None
    return {"id": call.id, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def template_tool(tool: Tool) -> dict[str, object]:
    function = tool.function
    parameters = bytes(function.parameters) or b"null"
    described = {
        "name": function.name,
        "description": function.description or "",
        "parameters": msgspec.json.decode(parameters) or {"type": "object", "properties": {}},
    }
    return {"type": "function", "function": described}
