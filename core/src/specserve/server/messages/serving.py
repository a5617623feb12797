"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from specserve.errors import RequestError
from specserve.server.answers import Answer, AnswerReader, send_answer
from specserve.server.chat_prompt import encode_chat
from specserve.server.decode_body import decode_body
from specserve.server.json_response import json_response
from specserve.server.messages.bodies import CountTokensBody, MessagesBody
from specserve.server.messages.chat_bodies import FIELD_NAMES, to_chat_body, tools_of
from specserve.server.messages.refusals import refuse_unsupported
from specserve.server.messages.turns import messages_of
from specserve.server.messages.writer import MessageWriter
from specserve.server.renamed_fields import renamed_fields
from specserve.server.request_bodies import ChatBody
from specserve.server.serving import prepared_request
from specserve.server.serving_chat import prepare_choices
from specserve.server.state import ready_engine

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.server.engine_client import EngineClient


async def create_message(request: web.Request) -> web.StreamResponse:
    engine = ready_engine(request)
    body = decode_body(await request.read(), MessagesBody)
    async with prepared_request(request, engine, body, prepare_answer) as answer:
        return await send_answer(request, engine, answer)


def prepare_answer(engine: EngineClient, body: MessagesBody, model: str, namespace: str) -> Answer:
    """Slow: renders the template, tokenizes and checks."""
    refuse_unsupported(body)
    if body.max_tokens is None:
        raise RequestError("max_tokens is required: how many tokens the answer may have.", param="max_tokens")
    id = f"msg_{uuid4().hex}"
    chat_body = to_chat_body(body)
    with renamed_fields(FIELD_NAMES):
        choices, calling = prepare_choices(engine, chat_body, id, namespace)
    writer = MessageWriter(id, model, choices[0])
    return Answer(id, model, choices[0], AnswerReader(calling.form), writer, bool(body.stream))


async def count_tokens(request: web.Request) -> web.Response:
    engine = ready_engine(request)
    body = decode_body(await request.read(), CountTokensBody)
    return json_response({"input_tokens": await asyncio.to_thread(count_prompt, engine, body)})


def count_prompt(engine: EngineClient, body: CountTokensBody) -> int:
    refuse_unsupported(body)
    tools = tools_of(body) or ()
    return len(encode_chat(engine.tokenizer, ChatBody(messages=messages_of(body)), tools))
