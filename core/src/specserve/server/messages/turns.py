"""From the turns of a conversation, in blocks, to the messages of a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from specserve.errors import RequestError
from specserve.server.request_bodies import Message
from specserve.server.structured_output import is_null
from specserve.server.tools.bodies import CalledFunction, ToolCall

if TYPE_CHECKING:
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
        if turn.role == "assistant":
            message = assistant_message(turn, where)
            call_ids |= {call.id or "" for call in message.tool_calls or ()}
            messages.append(message)
        elif turn.role == "user":
            messages += user_messages(turn, call_ids, where)
        elif turn.role == "system":
            messages.append(Message(role="system", content=text_of(turn.content, where)))
        else:
            refuse(where, f"role must be user, assistant or system; got {turn.role!r}")
    return messages


def assistant_message(turn: Turn, where: str) -> Message:
    blocks = turn.content
    if isinstance(blocks, str):
        return Message(role="assistant", content=blocks)
    calls = [call_of(block, where) for block in blocks if block.type == "tool_use"]
    text = text_of([block for block in blocks if block.type not in ("tool_use", *THOUGHTS)], where)
    thoughts = [block.thinking or "" for block in blocks if block.type == "thinking"]
    reasoning = "\n".join(thoughts) if thoughts else None
    return Message(role="assistant", content=text, tool_calls=calls or None, reasoning=reasoning)


def call_of(block: Block, where: str) -> ToolCall:
    if not block.id or not block.name:
        refuse(where, "a tool_use needs id and name")
    arguments = "{}" if is_null(block.input) else bytes(block.input).decode()
    return ToolCall(id=block.id, type="function", function=CalledFunction(name=block.name, arguments=arguments))


def user_messages(turn: Turn, call_ids: set[str], where: str) -> list[Message]:
    """Each result of a tool is a message of its own, and so is the text before or behind it."""
    if isinstance(turn.content, str):
        return [Message(role="user", content=turn.content)]
    messages: list[Message] = []
    text: list[Block] = []
    for block in turn.content:
        if block.type != "tool_result":
            text.append(block)
            continue
        if text:
            messages.append(Message(role="user", content=text_of(text, where)))
            text = []
        if block.tool_use_id not in call_ids:
            refuse(where, f"no tool_use before it has the id {block.tool_use_id!r}")
        result = (FAILED if block.is_error else "") + result_of(block.content or "", where)
        messages.append(Message(role="tool", tool_call_id=block.tool_use_id, content=result))
    if text or not messages:
        messages.append(Message(role="user", content=text_of(text, where)))
    return messages


def result_of(content: str | list[Block], where: str) -> str:
    """A tool that the client's search of tools has found is told by its name: the prompt lists every tool anyway."""
    if isinstance(content, str):
        return content
    return "\n".join(
        REFERENCE + tool_of(block, where) if block.type == "tool_reference" else text_of([block], where)
        for block in content
    )


def tool_of(block: Block, where: str) -> str:
    if not block.tool_name:
        refuse(where, "a tool_reference needs a tool_name")
    return block.tool_name


def text_of(content: str | list[Block], where: str) -> str:
    if isinstance(content, str):
        return content
    for block in content:
        if block.type != "text":
            refuse(where, f"content of type {block.type!r} is not served here; only text is")
        if block.text is None:
            refuse(where, "a block of type text needs a text")
    return "\n".join(block.text or "" for block in content)


def refuse(where: str, text: str) -> NoReturn:
    raise RequestError(f"{where}: {text}.", param="system" if where == "system" else "messages")
