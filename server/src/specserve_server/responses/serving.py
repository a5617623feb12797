"""POST /v1/responses, GET and DELETE /v1/responses/{id}."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from aiohttp import web

from specserve.errors import RequestError
from specserve_checks.type_words import shown
from specserve_server.bodies.responses import InputItem, ResponsesBody
from specserve_server.bodies.responses_names import FIELD_NAMES
from specserve_server.responses.answer import Response, ResponseDeleted
from specserve_server.responses.fitting import prepare_fitting
from specserve_server.responses.input_items import add_input, add_output, with_references
from specserve_server.responses.refusals import refuse_unsupported
from specserve_server.responses.response_object import new_response
from specserve_server.responses.store import RESPONSES
from specserve_server.responses.tools import served_tools
from specserve_server.responses.writer import ResponseWriter
from specserve_server.serving.answers import Answer, AnswerReader, send_answer
from specserve_server.serving.respond import prepared_request
from specserve_server.state.request_record import RECORD
from specserve_server.state.server_state import ready_engine
from specserve_server.wire.json_response import json_response
from specserve_server.wire.read_body import read_body
from specserve_server.wire.renamed_fields import renamed_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve_server.bodies.requests import Message
    from specserve_server.engine_client import EngineClient

    Keep = Callable[[Response, Sequence[Message]], None]


async def create_response(request: web.Request) -> web.StreamResponse:
    engine = ready_engine(request)
    body = await read_body(request, ResponsesBody)
    store, owner = request.app[RESPONSES], owner_of(request)
    history: Sequence[Message] = ()
    if body.previous_response_id is not None:
        history = store.get(body.previous_response_id, owner, param="previous_response_id").messages

    def keep(response: Response, messages: Sequence[Message]) -> None:
        if body.store is not False:
            output = msgspec.convert(msgspec.to_builtins(response.output), list[InputItem])
            data = msgspec.json.encode(response)
            store.put(response.id, owner, data, output, add_output(messages, output))

    body = msgspec.structs.replace(body, input=with_references(body.input, partial(store.output_item, owner=owner)))
    prepare = partial(prepare_answer, history=history, keep=keep)
    async with prepared_request(request, engine, body, prepare) as answer:
        return await send_answer(request, engine, answer)


def prepare_answer(
    engine: EngineClient, body: ResponsesBody, model: str, adapter: str, *, history: Sequence[Message], keep: Keep
) -> Answer:
    """Slow: renders the template, tokenizes and checks."""
    refuse_unsupported(body)
    messages = add_input(history, body.input)
    id = f"resp_{uuid4().hex}"
    with renamed_fields(FIELD_NAMES):
        choices, calling = prepare_fitting(engine, body, messages, id, adapter)
    response = new_response(id, body, model, choices[0])
    writer = ResponseWriter(response, choices[0], lambda response: keep(response, messages), served_tools(body))
    return Answer(id, model, choices[0], AnswerReader(calling.reading), writer, bool(body.stream))


async def get_response(request: web.Request) -> web.Response:
    streamed = request.query.getall("stream", [])
    if streamed not in ([], ["false"]):
        got = ", ".join(streamed)
        text = f"stream: a stored response is not streamed again; leave it out, or send false. Got {shown(got)}."
        raise RequestError(text, param="stream")
    found = request.app[RESPONSES].get(request.match_info["id"], owner_of(request))
    return web.Response(body=found.data, content_type="application/json", charset="utf-8")


async def delete_response(request: web.Request) -> web.Response:
    id = request.match_info["id"]
    request.app[RESPONSES].delete(id, owner_of(request))
    return json_response(ResponseDeleted(id, "response", deleted=True))


def owner_of(request: web.Request) -> str:
    """The name of the API key; "" where the server has none."""
    return request[RECORD].key_name or ""
