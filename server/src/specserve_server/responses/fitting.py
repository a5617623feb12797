"""`truncation` auto: of a conversation that is too long for the context, the latest part that fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import CONTEXT_LENGTH_EXCEEDED, RequestError
from specserve_server.chat.serving import prepare_choices
from specserve_server.chat.system_messages import placed_system_messages
from specserve_server.responses.chat_bodies import num_leading, to_chat_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve_server.bodies.requests import ChatBody, Message
    from specserve_server.bodies.responses import ResponsesBody
    from specserve_server.chat.serving import PreparedChoices
    from specserve_server.engine_client import EngineClient


def prepare_fitting(
    engine: EngineClient, body: ResponsesBody, messages: Sequence[Message], id: str, adapter: str
) -> PreparedChoices:
    try:
        return prepare_choices(engine, chat_body_of(engine, body, messages), id, adapter)
    except RequestError as error:
        if body.truncation != "auto" or error.code != CONTEXT_LENGTH_EXCEEDED:
            raise
        overflow = error
    found: PreparedChoices | None = None
    shorter = shortened(messages)
    low, high = 0, len(shorter)
    while low < high:  # a prompt is encoded for each: as few as can be
        middle = (low + high) // 2
        try:
            found = prepare_choices(engine, chat_body_of(engine, body, shorter[middle]), id, adapter)
            high = middle
        except RequestError as error:
            if error.code != CONTEXT_LENGTH_EXCEEDED:
                raise
            low = middle + 1
    if found is None:
        raise overflow
    return found


def chat_body_of(engine: EngineClient, body: ResponsesBody, messages: Sequence[Message]) -> ChatBody:
    chat_body = to_chat_body(body, messages)
    placed = placed_system_messages(engine.template, chat_body.messages or ())
    return msgspec.structs.replace(chat_body, messages=placed)


def shortened(messages: Sequence[Message]) -> list[Sequence[Message]]:
    """The conversation without its beginning, the longest first. System messages stay; what is left begins with one of
    the user, so that no result comes without its call."""
    count = num_leading(messages)
    system, rest = messages[:count], messages[count:]
    begins = [i for i, message in enumerate(rest) if i and message.role == "user"]
    return [[*system, *rest[i:]] for i in begins]
