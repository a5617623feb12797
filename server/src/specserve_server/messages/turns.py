"""From the turns of a conversation, in blocks, to the messages of a chat. Errors name the block by its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from specserve.errors import RequestError
from specserve_checks.type_words import MAX_SHOWN, listed, shown
from specserve_server.bodies.requests import Message
from specserve_server.bodies.tools import CalledFunction, ToolCall
from specserve_server.generation.structured_output import is_null
from specserve_server.tools.arguments import decode_arguments

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from specserve_server.bodies.messages import Block, CountTokensBody, Turn

FAILED = "error: "
"""Before the result of a tool that failed: chat templates have no other word for it."""
REFERENCE = "found tool: "
THOUGHTS = ("thinking", "redacted_thinking")
"""Redacted ones, which another server encrypted, cannot be read: the conversation goes on without them."""
OF_ASSISTANT = ("text", *THOUGHTS, "tool_use")
OF_USER = ("text", "tool_result")
OF_RESULT = ("text", "tool_reference")
OF_SYSTEM = ("text",)
ROLES = ("user", "assistant", "system")
MEDIA = ("image", "document", "container_upload")
MAX_SHOWN_IDS = 4


class Placed(NamedTuple):
    """A block and its path."""

    where: str
    block: Block


def placed(blocks: Sequence[Block], where: str, types: Collection[str]) -> list[Placed]:
    """`types`: those that are served here."""
    found = [Placed(f"{where}[{i}]", block) for i, block in enumerate(blocks)]
    for path, block in found:
        if block.type not in types:
            advice = "; only text is served" if block.type in MEDIA else ""
            refuse(f"{path}.type", f"must be {listed(map(shown, types))} here; got {shown(block.type)}{advice}")
        if block.type == "text" and block.text is None:
            refuse(f"{path}.text", "is missing; it must be a string")
    return found


def messages_of(body: CountTokensBody) -> list[Message]:
    if not body.messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    if body.messages[-1].role == "assistant":
        text = "the last message must be the user's; to begin the answer for the model is not served"
        refuse(f"messages[{len(body.messages) - 1}].role", text)
    system = text_of(body.system or "", "system")
    messages = [Message(role="system", content=system)] if system else []
    call_ids: dict[str, None] = {}
    for i, turn in enumerate(body.messages):
        where = f"messages[{i}]"
        if turn.role == "assistant":
            message = assistant_message(turn, f"{where}.content")
            call_ids |= {call.id or "": None for call in message.tool_calls or ()}
            messages.append(message)
        elif turn.role == "user":
            messages += user_messages(turn, call_ids, f"{where}.content")
        elif turn.role == "system":
            messages.append(Message(role="system", content=text_of(turn.content, f"{where}.content")))
        else:
            advice = "; results of tools are blocks tool_result of the user" if turn.role == "tool" else ""
            refuse(f"{where}.role", f"must be {listed(map(shown, ROLES))}; got {shown(turn.role)}{advice}")
    return messages


def assistant_message(turn: Turn, where: str) -> Message:
    if isinstance(turn.content, str):
        return Message(role="assistant", content=turn.content)
    blocks = placed(turn.content, where, OF_ASSISTANT)
    calls = [call_of(each) for each in blocks if each.block.type == "tool_use"]
    thoughts = [each.block.thinking or "" for each in blocks if each.block.type == "thinking"]
    reasoning = "\n".join(thoughts) if thoughts else None
    return Message(role="assistant", content=joined(blocks), tool_calls=calls or None, reasoning=reasoning)


def call_of(placed: Placed) -> ToolCall:
    where, block = placed
    for name in ("id", "name"):
        if not getattr(block, name):
            refuse(f"{where}.{name}", "is missing; a tool_use needs id and name, as the answer had them")
    arguments = "{}" if is_null(block.input) else bytes(block.input).decode()
    if not isinstance(decode_arguments(arguments, f"{where}.input", "messages"), dict):
        refuse(f"{where}.input", f"must be an object, as the answer had it; got {arguments[:MAX_SHOWN]}")
    function = CalledFunction(name=block.name or "", arguments=arguments)
    return ToolCall(id=block.id, type="function", function=function)


def user_messages(turn: Turn, call_ids: Collection[str], where: str) -> list[Message]:
    """Each result of a tool is a message of its own, and so is the text before or behind it."""
    if isinstance(turn.content, str):
        return [Message(role="user", content=turn.content)]
    messages: list[Message] = []
    text: list[Placed] = []
    for each in placed(turn.content, where, OF_USER):
        if each.block.type != "tool_result":
            text.append(each)
            continue
        if text:
            messages.append(Message(role="user", content=joined(text)))
            text = []
        messages.append(result_message(each, call_ids))
    if text or not messages:
        messages.append(Message(role="user", content=joined(text)))
    return messages


def result_message(placed: Placed, call_ids: Collection[str]) -> Message:
    where, block = placed
    if block.tool_use_id is None:
        refuse(f"{where}.tool_use_id", "is missing; it must be the id of the tool_use that this is the result of")
    if block.tool_use_id not in call_ids:
        known = (
            f"the last ones are {', '.join(map(shown, list(call_ids)[-MAX_SHOWN_IDS:]))}"
            if call_ids
            else "send the turn of the assistant with it, too"
        )
        refuse(f"{where}.tool_use_id", f"no tool_use before it has the id {shown(block.tool_use_id)}; {known}")
    result = (FAILED if block.is_error else "") + result_of(block.content or "", f"{where}.content")
    return Message(role="tool", tool_call_id=block.tool_use_id, content=result)


def result_of(content: str | list[Block], where: str) -> str:
    """A tool that the client's search of tools has found is told by its name: the prompt lists every tool anyway."""
    if isinstance(content, str):
        return content
    blocks = placed(content, where, OF_RESULT)
    return "\n".join(
        REFERENCE + tool_of(each) if each.block.type == "tool_reference" else each.block.text or "" for each in blocks
    )


def tool_of(placed: Placed) -> str:
    if not placed.block.tool_name:
        refuse(f"{placed.where}.tool_name", "is missing; a tool_reference names a tool")
    return placed.block.tool_name


def text_of(content: str | list[Block], where: str) -> str:
    return content if isinstance(content, str) else joined(placed(content, where, OF_SYSTEM))


def joined(blocks: Sequence[Placed]) -> str:
    """The texts among them."""
    return "\n".join(each.block.text or "" for each in blocks if each.block.type == "text")


def refuse(where: str, text: str) -> NoReturn:
    raise RequestError(f"{where}: {text}.", param="system" if where.startswith("system") else "messages")
