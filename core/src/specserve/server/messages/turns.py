"""From the turns of a conversation, in blocks, to the messages of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from specserve.errors import RequestError
from specserve.server.request_bodies import Message
from specserve.server.structured_output import is_null
from specserve.server.tools.bodies import CalledFunction, ToolCall
from specserve.type_words import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve.server.messages.bodies import Block, CountTokensBody, Turn

FAILED = "error: "
"""Before the result of a tool that failed: chat templates have no other word for it."""
REFERENCE = "found tool: "
THOUGHTS = ("thinking", "redacted_thinking")
"""Redacted ones, which another server encrypted, cannot be read: the conversation goes on without them."""


def messages_of(body: CountTokensBody) -> list[Message]:
    if not body.messages:
        raise RequestError("messages is required: a list of {role, content}.", param="messages")
    if body.messages[-1].role == "assistant":
        refuse("messages", "the last one must be the user's; to begin the answer for the model is not served")
    system = text_of(body.system or "", "system")
    messages = [Message(role="system", content=system)] if system else []
    call_ids: set[str] = set()
    for i, turn in enumerate(body.messages):
        where = f"messages[{i}]"
        if turn.content == []:
            refuse(f"{where}.content", "an empty list has no content; give a text, which may be empty, or blocks")
        if turn.role == "assistant":
            message = assistant_message(turn, where)
            call_ids |= {call.id or "" for call in message.tool_calls or ()}
            messages.append(message)
        elif turn.role == "user":
            messages += user_messages(turn, call_ids, where)
        elif turn.role == "system":
            messages.append(Message(role="system", content=text_of(turn.content, f"{where}.content")))
        else:
            refuse(f"{where}.role", f"must be user, assistant or system; got {shown(turn.role)}")
    return messages


def assistant_message(turn: Turn, where: str) -> Message:
    blocks = turn.content
    if isinstance(blocks, str):
        return Message(role="assistant", content=blocks)
    placed = [(block, f"{where}.content[{i}]") for i, block in enumerate(blocks)]
    calls = [call_of(block, place) for block, place in placed if block.type == "tool_use"]
    text = joined_text((block, place) for block, place in placed if block.type not in ("tool_use", *THOUGHTS))
    thoughts = [block.thinking or "" for block in blocks if block.type == "thinking"]
    reasoning = "\n".join(thoughts) if thoughts else None
    return Message(role="assistant", content=text, tool_calls=calls or None, reasoning=reasoning)


def call_of(block: Block, where: str) -> ToolCall:
    for name in ("id", "name"):
        if not getattr(block, name):
            refuse(f"{where}.{name}", f"a tool_use needs one; got {shown(getattr(block, name))}")
    assert block.id
    assert block.name
    arguments = "{}" if is_null(block.input) else bytes(block.input).decode()
    return ToolCall(id=block.id, type="function", function=CalledFunction(name=block.name, arguments=arguments))


def user_messages(turn: Turn, call_ids: set[str], where: str) -> list[Message]:
    """Each result of a tool is a message of its own, and so is the text before or behind it."""
    if isinstance(turn.content, str):
        return [Message(role="user", content=turn.content)]
    messages: list[Message] = []
    text: list[tuple[Block, str]] = []
    for i, block in enumerate(turn.content):
        place = f"{where}.content[{i}]"
        if block.type != "tool_result":
            text.append((block, place))
            continue
        if text:
            messages.append(Message(role="user", content=joined_text(text)))
            text = []
        if block.tool_use_id not in call_ids:
            refuse(
                f"{place}.tool_use_id",
                f"no tool_use before it has the id {shown(block.tool_use_id)}; send its turn, too",
            )
        result = (FAILED if block.is_error else "") + result_of(block.content or "", f"{place}.content")
        messages.append(Message(role="tool", tool_call_id=block.tool_use_id, content=result))
    if text or not messages:
        messages.append(Message(role="user", content=joined_text(text)))
    return messages


def result_of(content: str | list[Block], where: str) -> str:
    """A tool that the client's search of tools has found is told by its name: the prompt lists every tool anyway."""
    if isinstance(content, str):
        return content
    placed = [(block, f"{where}[{i}]") for i, block in enumerate(content)]
    return "\n".join(
        REFERENCE + tool_of(block, place) if block.type == "tool_reference" else joined_text([(block, place)])
        for block, place in placed
    )


def tool_of(block: Block, where: str) -> str:
    if not block.tool_name:
        refuse(f"{where}.tool_name", f"a tool_reference needs one; got {shown(block.tool_name)}")
    return block.tool_name


def text_of(content: str | list[Block], where: str) -> str:
    if isinstance(content, str):
        return content
    return joined_text((block, f"{where}[{i}]") for i, block in enumerate(content))


def joined_text(placed: Iterable[tuple[Block, str]]) -> str:
    """Of blocks and their places."""
    texts: list[str] = []
    for block, place in placed:
        if block.type != "text":
            refuse(f"{place}.type", f"content of type {shown(block.type)} is not served here; only text is")
        if block.text is None:
            refuse(f"{place}.text", "a block of type text needs a text, which may be empty; got null")
        texts.append(block.text)
    return "\n".join(texts)


def refuse(where: str, text: str) -> NoReturn:
    raise RequestError(f"{where}: {text}.", param=where.partition("[")[0])
