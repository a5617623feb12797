"""The messages of a chat as chat templates read them. What is wrong with one is named by its path."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.tools.arguments import decode_arguments
from specserve_server.tools.template_turns import THOUGHTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import ContentPart, Message
    from specserve_server.bodies.tools import ToolCall

PARAM = "messages"
ROLES = ("user", "assistant", "system", "developer", "tool")
REFUSED_ROLE = "function"
OTHER_NAMES = {"human": "user", "ai": "assistant", "bot": "assistant"}
ALIKE = 0.75
"""From this similarity on (difflib's ratio), another role was meant."""
MAX_ROLE = 32


def template_messages(messages: Sequence[Message]) -> list[dict[str, object]]:
    """Raises RequestError."""
    return [template_message(message, f"{PARAM}[{i}]") for i, message in enumerate(messages)]


def template_message(message: Message, where: str) -> dict[str, object]:
    """Text parts are joined, and the arguments of tool calls are objects."""
    refuse_fields(message, where)
    check_content(message, f"{where}.content")
    found: dict[str, object] = {"role": message.role, "content": text_content(message)}
    if message.name is not None:
        found["name"] = message.name
    if message.tool_call_id is not None:
        found["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        found["tool_calls"] = [
            template_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(message.tool_calls)
        ]
    reasoning = message.reasoning_content if message.reasoning is None else message.reasoning
    if reasoning is not None:
        found |= dict.fromkeys(THOUGHTS, reasoning)
    return found


def check_roles(messages: Sequence[Message], chat_template: str) -> None:
    """A role that is spelled almost like a known one, and that the template does not name, is a slip. Others are the
    template's to refuse."""
    for i, role in enumerate(message.role for message in messages):
        if role in (*ROLES, REFUSED_ROLE) or repr(role) in chat_template or f'"{role}"' in chat_template:
            continue
        nearest = get_close_matches(role[:MAX_ROLE].lower(), ROLES, n=1, cutoff=ALIKE)
        meant = OTHER_NAMES.get(role.lower()) or (nearest[0] if nearest else None)
        if meant:
            known = f"the roles are {', '.join(map(shown, ROLES))}"
            raise RequestError(f"{PARAM}[{i}].role: {known}; got {shown(role)}; did you mean {meant}?", param=PARAM)


def refuse_fields(message: Message, where: str) -> None:
    """Fields of OpenAI's and other APIs without which the prompt would be another one."""
    if message.role == REFUSED_ROLE:
        refuse(f"{where}.role", '"function" is not served; send the role tool, with the tool_call_id of its call')
    if bytes(message.function_call) not in (b"", b"null"):
        refuse(f"{where}.function_call", "is not served; send tool_calls, and their results with the role tool")
    if bytes(message.audio) not in (b"", b"null"):
        refuse(f"{where}.audio", "is not served; send its text as content")
    if message.prefix or message.partial:
        name = "prefix" if message.prefix else "partial"
        refuse(f"{where}.{name}", "is not served; send continue_final_message beside messages")
    if message.content and message.refusal:
        refuse(f"{where}.refusal", "a message has either content or a refusal; got both. Leave one out")


def check_content(message: Message, where: str) -> None:
    """An empty text is content, and so is what the assistant refused with."""
    content = message.content
    if content is None and message.role != "assistant":
        refuse(where, 'is missing; it must be a string or a list of parts of type "text". Send "" for an empty text')
    if content is None and message.refusal is None and not message.tool_calls:
        refuse(where, 'is missing, and so are tool_calls; the assistant has one of them. Send "" for an empty text')
    for i, part in enumerate(content if isinstance(content, list) else ()):
        check_part(part, f"{where}[{i}]")


def check_part(part: ContentPart, where: str) -> None:
    if part.type != "text":
        given = "it is missing" if part.type is None else f"got {shown(part.type)}"
        refuse(f"{where}.type", f'must be "text", since other parts are not served; {given}')
    if part.text is None:
        refuse(f"{where}.text", "is missing; it must be a string")


def text_content(message: Message) -> str:
    """Of a message that was checked, or made by the server. What the assistant refused with is its text, too."""
    content = message.content
    if isinstance(content, list):
        content = "\n".join(part.text or "" for part in content)
    return content or message.refusal or ""


def template_call(call: ToolCall, where: str) -> dict[str, object]:
    function = call.function
    arguments = decode_arguments(function.arguments, f"{where}.function.arguments", PARAM)
    return {"id": call.id, "type": "function", "function": {"name": function.name, "arguments": arguments}}


def refuse(where: str, text: str) -> NoReturn:
    raise RequestError(f"{where}: {text}.", param=PARAM)
