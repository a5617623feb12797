"""The OpenAPI document: request bodies from the Structs that decode them; responses are OpenAI's."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from specserve import __version__
from specserve.server.messages.bodies import CountTokensBody, MessagesBody
from specserve.server.request_bodies import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from specserve.server.responses.bodies import ResponsesBody

if TYPE_CHECKING:
    from specserve.json_types import JsonObject

POST_BODIES = {
    "/v1/completions": CompletionBody,
    "/v1/chat/completions": ChatBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountTokensBody,
    "/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
}
GET_SUMMARIES = {
    "/health": "200 when ready, 503 while loading, draining or dead",
    "/ping": "As /health",
    "/load": "How many requests run or wait",
    "/version": "The server's version",
    "/metrics": "Prometheus metrics",
    "/v1/models": "The models and adapters that are served",
    "/v1/models/{name}": "One of them",
    "/v1/responses/{id}": "A response that is stored",
    "/v1/plugins": "Enabled plugins and the effective configuration",
    "/openapi.json": "This document",
}
POST_SUMMARIES = {
    "/ping": "As /health",
    "/reset_prefix_cache": "Forgets every cached prefix that no running request uses",
}
"""Of operations without a body."""
RESPONSES = {"200": {"description": "OK"}}


@cache
def openapi_document(root_path: str = "") -> JsonObject:
    schemas, components = msgspec.json.schema_components(
        list(POST_BODIES.values()), ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, JsonObject] = {path: get_operation(path, summary) for path, summary in GET_SUMMARIES.items()}
    paths["/v1/responses/{id}"] = {
        **get_operation("/v1/responses/{id}", GET_SUMMARIES["/v1/responses/{id}"]),
        "delete": get_operation("/v1/responses/{id}", "Forget it")["get"],
    }
    paths |= {path: post_operation(schema) for path, schema in zip(POST_BODIES, schemas, strict=True)}
    for path, summary in POST_SUMMARIES.items():
        paths.setdefault(path, {})["post"] = {"summary": summary, "responses": RESPONSES}
    return {
        "openapi": "3.1.0",
        "info": {"title": "specserve", "version": __version__},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {"schemas": components},
    }


def get_operation(path: str, summary: str) -> JsonObject:
    operation: JsonObject = {"summary": summary, "responses": RESPONSES}
    for name in re.findall(r"{(\w+)}", path):
        operation["parameters"] = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}}]
    return {"get": operation}


def post_operation(schema: JsonObject) -> JsonObject:
    content = {"application/json": {"schema": schema}}
    return {"post": {"requestBody": {"content": content, "required": True}, "responses": RESPONSES}}
