"""POST /tokenize and /detokenize, GET /tokenizer_info."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve.server.chat_prompt import encode_messages
from specserve.server.decode_body import decode_body
from specserve.server.json_response import json_response
from specserve.server.request_bodies import DetokenizeBody, TokenizeBody
from specserve.server.state import loaded_engine, ready_engine

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.json_types import JsonObject
    from specserve.server.engine_client import EngineClient, ServerTokenizer


async def tokenize(request: web.Request) -> web.Response:
    engine = ready_engine(request)
    body = decode_body(await request.read(), TokenizeBody)
    return json_response(await asyncio.to_thread(tokenize_response, engine, body))


def tokenize_response(engine: EngineClient, body: TokenizeBody) -> JsonObject:
    ids = encode(engine.tokenizer, body)
    texts = {id: engine.tokenizer.token_text(id) for id in set(ids)} if body.return_token_strs else None
    strings = None if texts is None else [texts[id] for id in ids]
    return {"count": len(ids), "max_model_len": engine.max_model_len, "tokens": ids, "token_strs": strings}


def encode(tokenizer: ServerTokenizer, body: TokenizeBody) -> list[int]:
    if body.prompt is None:
        return encode_messages(tokenizer, body.messages, add_generation_prompt=body.add_generation_prompt is not False)
    if body.messages is not None:
        raise RequestError("give either prompt or messages, not both.", param="messages")
    return tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)


async def detokenize(request: web.Request) -> web.Response:
    engine = ready_engine(request)
    body = decode_body(await request.read(), DetokenizeBody)
    if body.tokens is None:
        raise RequestError("tokens is required: a list of token ids.", param="tokens")
    text = await asyncio.to_thread(engine.tokenizer.decode, body.tokens, skip_special_tokens=False)
    return json_response({"prompt": text})


async def tokenizer_info(request: web.Request) -> web.Response:
    tokenizer = loaded_engine(request).tokenizer
    return json_response(
        {
            "tokenizer_class": tokenizer.tokenizer_class,
            "special_tokens": tokenizer.special_tokens,
            "chat_template": tokenizer.chat_template or None,
        }
    )
