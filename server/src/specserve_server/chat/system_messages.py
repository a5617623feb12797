"""System messages behind the first turn, which agents send: many chat templates take one at the beginning only."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import msgspec

from specserve.errors import RequestError
from specserve_server.bodies.requests import Message
from specserve_server.chat.messages import text_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.templates.model_template import ModelTemplate

MARK = "a later instruction"
KNOWN: WeakKeyDictionary[ModelTemplate, bool] = WeakKeyDictionary()
"""A template is asked once."""


def placed_system_messages(template: ModelTemplate, messages: Sequence[Message]) -> list[Message]:
    """Those at the beginning are one message. Later ones stay where they are if the template shows them there, and are
    else text of the user's turn."""
    leading = list(takewhile(lambda message: message.role == "system", messages))
    rest = messages[len(leading) :]
    text = "\n\n".join(map(text_content, leading))
    placed = [Message(role="system", content=text)] if leading else []
    if all(message.role != "system" for message in rest) or shows_later_ones(template):
        return [*placed, *rest]
    for message in rest:
        role = "user" if message.role == "system" else message.role
        if role == "user" and placed and placed[-1].role == "user":  # templates want roles to alternate
            joined = f"{text_content(placed[-1])}\n\n{text_content(message)}"
            placed[-1] = Message(role="user", content=joined)
        else:
            placed.append(msgspec.structs.replace(message, role=role))
    return placed


def shows_later_ones(template: ModelTemplate) -> bool:
    found = KNOWN.get(template)
    if found is None:
        turns = [("user", "a"), ("assistant", "b"), ("system", MARK), ("user", "c")]
        try:
            rendered = template.render([{"role": role, "content": text} for role, text in turns])
        except RequestError:
            rendered = ""
        found = KNOWN[template] = MARK in rendered
    return found
