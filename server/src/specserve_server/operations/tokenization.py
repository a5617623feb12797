"""POST /tokenize and /detokenize, GET /tokenizer_info."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve_server.bodies.requests import DetokenizeBody, TokenizeBody
from specserve_server.chat.prompt import encode_chat
from specserve_server.chat.tool_calling import usable_form
from specserve_server.generation.text_beginning import token_names
from specserve_server.operations.answers import TokenizerInfo, Tokens, TokenText
from specserve_server.state.model_lookup import pinned_model
from specserve_server.state.server_state import loaded_engine, ready_engine, served_model_names
from specserve_server.wire.json_response import json_response
from specserve_server.wire.read_body import read_body

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from specserve_server.bodies.tools import Tool
    from specserve_server.engine_client import EngineClient
    from specserve_server.templates.model_template import ModelTemplate

MESSAGES_FIELDS = (
    "continue_final_message",
    "chat_template_kwargs",
    "documents",
    "reasoning_effort",
    "verbosity",
    "tools",
)
EMPTY_VALUES: tuple[object, ...] = (None, False, msgspec.Raw(), msgspec.Raw(b"null"), [])


async def tokenize(request: web.Request) -> web.Response:
    engine = ready_engine(request)
    body = await read_body(request, TokenizeBody)
    async with pinned_model(engine, body.model, served_model_names(request)):
        return json_response(await asyncio.to_thread(tokenize_response, engine, body))


def tokenize_response(engine: EngineClient, body: TokenizeBody) -> Tokens:
    ids = encode(engine, body)
    strings = token_names(engine.tokenizer, ids) if body.return_token_strs else None
    return Tokens(len(ids), engine.max_model_len, ids, strings)


def encode(engine: EngineClient, body: TokenizeBody) -> list[int]:
    if body.prompt is None and body.messages is None:
        raise RequestError("prompt or messages is required: a string, or a list of {role, content}.", param="prompt")
    if body.prompt is None:
        return encode_chat(engine, body, offered_tools(engine.template, body))
    if body.messages is not None:
        raise RequestError("messages: give either prompt or messages; got both.", param="messages")
    for name in MESSAGES_FIELDS:
        if getattr(body, name) not in EMPTY_VALUES:
            raise RequestError(f"{name}: it belongs to messages; a prompt is tokenized as it is.", param=name)
    return engine.tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)


def offered_tools(template: ModelTemplate, body: TokenizeBody) -> Sequence[Tool]:
    """As in chat: none where the model may call none."""
    if not body.tools or body.tool_choice == "none":
        return ()
    usable_form(template)
    return body.tools


async def detokenize(request: web.Request) -> web.Response:
    engine = ready_engine(request)
    body = await read_body(request, DetokenizeBody)
    if body.tokens is None:
        raise RequestError("tokens is required: a list of token ids, such as [1, 2].", param="tokens")
    async with pinned_model(engine, body.model, served_model_names(request)):
        text = await asyncio.to_thread(engine.tokenizer.decode, body.tokens, skip_special_tokens=False)
    return json_response(TokenText(text))


async def tokenizer_info(request: web.Request) -> web.Response:
    engine = loaded_engine(request)
    template = engine.template
    return json_response(
        TokenizerInfo(engine.tokenizer.tokenizer_class, template.special_tokens, template.source or None)
    )
