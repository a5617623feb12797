"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from specserve.errors import RequestError
from specserve_server.bodies.messages import CountTokensBody, MessagesBody
from specserve_server.bodies.messages_names import FIELD_NAMES
from specserve_server.bodies.requests import ChatBody
from specserve_server.chat.prompt import encode_chat
from specserve_server.chat.serving import prepare_choices
from specserve_server.chat.system_messages import placed_system_messages
from specserve_server.messages.answer import TokenCount
from specserve_server.messages.chat_bodies import to_chat_body, tools_of
from specserve_server.messages.refusals import refuse_unsupported
from specserve_server.messages.thinking import effort_of
from specserve_server.messages.turns import messages_of
from specserve_server.messages.writer import MessageWriter
from specserve_server.serving.answers import Answer, AnswerReader, send_answer
from specserve_server.serving.respond import prepared_request
from specserve_server.state.server_state import ready_engine
from specserve_server.wire.json_response import json_response
from specserve_server.wire.read_body import read_body
from specserve_server.wire.renamed_fields import renamed_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from specserve_server.engine_client import EngineClient


async def create_message(request: web.Request) -> web.StreamResponse:
    engine = ready_engine(request)
    body = await read_body(request, MessagesBody)
    async with prepared_request(request, engine, body, prepare_answer) as answer:
        return await send_answer(request, engine, answer)


def prepare_answer(engine: EngineClient, body: MessagesBody, model: str, adapter: str) -> Answer:
    """Slow: renders the template, tokenizes and checks."""
    refuse_unsupported(body)
    if body.max_tokens is None:
        raise RequestError("max_tokens is required: how many tokens the answer may have.", param="max_tokens")
    id = f"msg_{uuid4().hex}"
    messages = placed_system_messages(engine.template, messages_of(body))
    chat_body = to_chat_body(body, messages, effort_of(engine.template, body))
    with renamed_fields(names_in(body)):
        choices, calling = prepare_choices(engine, chat_body, id, adapter)
    writer = MessageWriter(id, model, choices[0])
    return Answer(id, model, choices[0], AnswerReader(calling.reading), writer, bool(body.stream))


async def count_tokens(request: web.Request) -> web.Response:
    engine = ready_engine(request)
    body = await read_body(request, CountTokensBody)
    return json_response(TokenCount(await asyncio.to_thread(count_prompt, engine, body)))


def count_prompt(engine: EngineClient, body: CountTokensBody) -> int:
    refuse_unsupported(body)
    tools = tools_of(body) or ()
    messages = placed_system_messages(engine.template, messages_of(body))
    chat_body = ChatBody(messages=messages, reasoning_effort=effort_of(engine.template, body))
    with renamed_fields(names_in(body)):
        return len(encode_chat(engine, chat_body, tools))


def names_in(body: CountTokensBody) -> Mapping[str, str]:
    """What the body calls fields of a chat; the effort comes from one of two."""
    return FIELD_NAMES if body.thinking is None else FIELD_NAMES | {"reasoning_effort": "thinking"}
