"""`continue_final_message`: a prompt that ends within the last message, which the model continues.

A mark is written behind the message's text, and the rendered prompt is cut there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from specserve.errors import RequestError

if TYPE_CHECKING:
    from specserve_server.bodies.requests import Message

FIELD = "continue_final_message"


def check_continued(messages: list[Message], add_generation_prompt: bool | None) -> None:
    """Raises RequestError where the last message is not a text of the assistant."""
    if add_generation_prompt:
        text = "add_generation_prompt begins a new message; leave it out, or send false"
        raise RequestError(f"{FIELD}: {text}.", param=FIELD)
    last = messages[-1]
    if last.role != "assistant" or last.content is None or last.tool_calls:
        text = "the last message must be the assistant's, with content and without tool_calls"
        raise RequestError(f"{FIELD}: {text}.", param=FIELD)


def new_mark() -> str:
    """Found in no message. Its blank shows whether the template keeps the blanks at the end of a message."""
    return f"[{uuid4().hex}] "


def cut_at_mark(rendered: str, mark: str) -> str:
    """As far as the message goes. Where the template strips messages, so is the blank end of this one."""
    before, found, _ = rendered.rpartition(mark)
    if found:
        return before
    before, found, _ = rendered.rpartition(mark.strip())
    if not found:
        text = "the chat template of this model does not show the last message"
        raise RequestError(f"{FIELD}: {text}.", param=FIELD)
    return before.rstrip()
