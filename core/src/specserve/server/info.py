"""The routes that say what runs: health, version, models, plugins, tokens, and the OpenAPI document."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from specserve import __version__
from specserve.errors import ModelNotFoundError, RequestError
from specserve.server.errors import json_response
from specserve.server.model_lookup import list_models
from specserve.server.request_bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody, decode_body
from specserve.server.serving_chat import encode_messages
from specserve.server.state import engine_of, loaded_engine, served_name, state_of

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.server.engine_client import EngineClient

BODIES = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
READS = {
    "/health": "200 when ready, 503 while loading, draining or dead",
    "/version": "The server's version",
    "/metrics": "Prometheus metrics",
    "/v1/models": "The models and adapters that are served",
    "/v1/models/{name}": "One of them",
    "/v1/plugins": "Enabled plugins and the effective configuration",
    "/openapi.json": "This document",
}


async def health(request: web.Request) -> web.Response:
    status = state_of(request).status
    return json_response({"status": status}, status=200 if status == "ready" else 503)


async def version(request: web.Request) -> web.Response:
    return json_response({"version": __version__})


async def models(request: web.Request) -> web.Response:
    return json_response({"object": "list", "data": list_models(loaded_engine(request), served_name(request))})


async def one_model(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    for card in list_models(loaded_engine(request), served_name(request)):
        if card["id"] == name:
            return json_response(card)
    raise ModelNotFoundError(f"no model {name!r} is served; /v1/models lists them.", param="model")


async def plugins(request: web.Request) -> web.Response:
    engine = loaded_engine(request)
    return json_response({"object": "list", "data": engine.plugins.describe(), "engine": engine.describe()})


async def tokenize(request: web.Request) -> web.Response:
    engine = engine_of(request)
    body = decode_body(await request.read(), TokenizeBody)
    return json_response(await asyncio.to_thread(tokenized, engine, body))


def tokenized(engine: EngineClient, body: TokenizeBody) -> dict[str, Any]:
    ids = token_ids(engine, body)
    texts = {id: engine.tokenizer.token_text(id) for id in set(ids)} if body.return_token_strs else None
    strings = None if texts is None else [texts[id] for id in ids]
    return {"count": len(ids), "max_model_len": engine.max_model_len, "tokens": ids, "token_strs": strings}


def token_ids(engine: EngineClient, body: TokenizeBody) -> list[int]:
    if body.prompt is None:
        return encode_messages(
            engine.tokenizer, body.messages, add_generation_prompt=body.add_generation_prompt is not False
        )
    if body.messages is not None:
        raise RequestError("give either prompt or messages, not both.", param="messages")
    return engine.tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False)


async def detokenize(request: web.Request) -> web.Response:
    engine = engine_of(request)
    body = decode_body(await request.read(), DetokenizeBody)
    if body.tokens is None:
        raise RequestError("tokens is required: a list of token ids.", param="tokens")
    text = await asyncio.to_thread(engine.tokenizer.decode, body.tokens, skip_special_tokens=False)
    return json_response({"prompt": text})


async def openapi(request: web.Request) -> web.Response:
    return json_response(openapi_document())


@cache
def openapi_document() -> dict[str, Any]:
    """Requests in full, out of the Structs that decode them; answers are OpenAI's."""
    schemas, components = msgspec.json.schema_components(
        list(BODIES.values()), ref_template="#/components/schemas/{name}"
    )
    responses = {"200": {"description": "OK"}}
    paths: dict[str, Any] = {
        path: {"get": {"summary": summary, "responses": responses}} for path, summary in READS.items()
    }
    for path, schema in zip(BODIES, schemas, strict=True):
        content = {"application/json": {"schema": schema}}
        paths[path] = {"post": {"requestBody": {"content": content, "required": True}, "responses": responses}}
    paths["/v1/models/{name}"]["get"]["parameters"] = [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    return {
        "openapi": "3.1.0",
        "info": {"title": "specserve", "version": __version__},
        "paths": paths,
        "components": {"schemas": components},
    }
