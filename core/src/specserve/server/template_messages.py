"""The messages of a chat as chat templates read them. What cannot be served is named by path."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import msgspec

from specserve.errors import RequestError
from specserve.type_words import shown

if TYPE_CHECKING:
    from specserve.server.request_bodies import Message
    from specserve.server.tools.bodies import ToolCall

UNSERVED = {"prefix": "continue_final_message", "partial": "continue_final_message"}
"""Fields of other APIs without which the prompt would be another one, and what to send in their place."""


def template_message(message: Message, where: str) -> dict[str, object]:
    """Text parts are joined, and the arguments of tool calls are objects. `where`: `messages[0]`."""
    refuse_message_fields(message, where)
    found: dict[str, object] = {"role": message.role, "content": text_content(message, where)}
    if message.name is not None:
        found["name"] = message.name
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        calls = enumerate(message.tool_calls)
        found["tool_calls"] = [template_call(call, f"{where}.tool_calls[{i}]") for i, call in calls]
    reasoning = message.reasoning_content if message.reasoning is None else message.reasoning
    if reasoning is not None:
        found["reasoning"] = found["reasoning_content"] = reasoning
    return found


def text_content(message: Message, where: str = "messages") -> str:
    """What the assistant refused with is its text, too. An empty text is one."""
    content = message.content
    if isinstance(content, list):
        for i, part in enumerate(content):
            place = f"{where}.content[{i}]"
            if part.type != "text":
                refuse(f"{place}.type", f'only text is served: must be "text"; got {shown(part.type)}')
            if part.text is None:
                refuse(f"{place}.text", "a part of type text needs a text, which may be empty; got null")
        content = "\n".join(part.text or "" for part in content)
    return content or message.refusal or ""


def refuse_message_fields(message: Message, where: str) -> None:
    if message.role == "function" or bytes(message.function_call) not in (b"", b"null"):
        place = f"{where}.role" if message.role == "function" else f"{where}.function_call"
        refuse(place, "functions are not served; send tool_calls, and their results with the role tool")
    if bytes(message.audio) not in (b"", b"null"):
        refuse(f"{where}.audio", "audio is not served; send its text as content")
    for name, instead in UNSERVED.items():
        if getattr(message, name):
            refuse(f"{where}.{name}", f"is not served; send {instead}")
    if message.content and message.refusal:
        refuse(f"{where}.refusal", "a message has either content or a refusal; got both")
    if not has_content(message):
        needs = ", tool_calls or a refusal" if message.role == "assistant" else ""
        got = "null" if message.content is None else "an empty list"
        refuse(
            f"{where}.content", f"is required: a text, which may be empty, or a list of text parts{needs}; got {got}"
        )


def has_content(message: Message) -> bool:
    """Answers that are sent back may have calls, reasoning or a refusal only."""
    if message.role == "assistant" and (message.tool_calls or message.reasoning or message.reasoning_content):
        return True
    return message.refusal is not None or not (message.content is None or message.content == [])


def template_call(call: ToolCall, where: str) -> dict[str, object]:
    function = call.function
    arguments = decoded_arguments(function.name, function.arguments, f"{where}.function.arguments")
    return {"id": call.id, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def decoded_arguments(name: str | None, arguments: str | None, where: str) -> object:
    """`where` begins with the name of the body's field. Raises RequestError."""
    try:
        return msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        refuse(
            where, f"the arguments of the call of {shown(name)} are not valid JSON; send them as the answer had them"
        )


def refuse(where: str, text: str) -> NoReturn:
    raise RequestError(f"{where}: {text}.", param=where.partition("[")[0])
