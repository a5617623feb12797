"""The operations of the server's own routes, by path and method. A test compares them with the routes."""

from __future__ import annotations

from typing import Literal

from msgspec import Raw

from specserve_server.bodies.messages import CountTokensBody, MessagesBody
from specserve_server.bodies.requests import ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from specserve_server.bodies.responses import ResponsesBody
from specserve_server.chat.answer import ChatCompletion, ChatCompletionChunk
from specserve_server.completions.answer import Completion, CompletionChunk
from specserve_server.messages.answer import MESSAGE_EVENTS, AnthropicMessage, TokenCount
from specserve_server.operation import EVENTS, JSON, TEXT, Answer, Events, Operation
from specserve_server.operations.answers import (
    CacheReset,
    Health,
    Load,
    ModelCard,
    ModelList,
    PluginList,
    PluginPairs,
    TokenizerInfo,
    Tokens,
    TokenText,
    Version,
)
from specserve_server.operations.loads import Loads, ServerInfo
from specserve_server.responses.answer import Response, ResponseDeleted
from specserve_server.responses.events import RESPONSE_EVENTS

HELLO = [{"role": "user", "content": "Hello"}]
OF_GENERATION = (404, 504)
"""An unknown model, and a request that runs too long."""


def json_answer(type: object) -> tuple[Answer, ...]:
    return (Answer(content={JSON: type}),)


def generated(whole: object, events: Events) -> tuple[Answer, ...]:
    return (Answer(content={JSON: whole, EVENTS: events}, description="Events where the body asks for a stream"),)


HEALTH = Operation(
    summary="Whether the server is ready",
    tag="server",
    answers=(
        Answer(content={JSON: Health}, description="Ready"),
        Answer(content={JSON: Health}, description="Loading, draining or dead", status=503),
    ),
    is_public=True,
)
SERVER_OPERATIONS = {
    "/health": {"get": HEALTH},
    "/ping": {"get": HEALTH, "post": HEALTH},
    "/version": {"get": Operation(summary="The server's version", tag="server", answers=json_answer(Version))},
    "/metrics": {
        "get": Operation(
            summary="Metrics, for Prometheus",
            tag="server",
            answers=(Answer(content={TEXT: str, "application/openmetrics-text": str}),),
        )
    },
    "/load": {"get": Operation(summary="How many requests run or wait", tag="server", answers=json_answer(Load))},
    "/v1/loads": {
        "get": Operation(
            summary="The engine's load, for routers", tag="server", query={"include": str}, answers=json_answer(Loads)
        )
    },
    "/get_server_info": {
        "get": Operation(summary="Which server this is, for routers", tag="server", answers=json_answer(ServerInfo))
    },
    "/openapi.json": {"get": Operation(summary="This document", tag="server", answers=json_answer(dict[str, Raw]))},
    "/docs": {
        "get": Operation(
            summary="This document, as a page",
            tag="server",
            answers=(Answer(content={"text/html": str}),),
            is_public=True,
        )
    },
    "/v1/plugins": {
        "get": Operation(
            summary="Enabled plugins and the effective configuration", tag="server", answers=json_answer(PluginList)
        )
    },
    "/v1/plugins/pairs": {
        "get": Operation(
            summary="Which installed plugins work together under this configuration, and why",
            tag="server",
            answers=json_answer(PluginPairs),
        )
    },
    "/reset_prefix_cache": {
        "post": Operation(
            summary="Forget every cached prefix that no running request uses",
            tag="server",
            answers=json_answer(CacheReset),
        )
    },
}
MODEL_OPERATIONS = {
    "/v1/models": {
        "get": Operation(summary="The models that are served", tag="models", answers=json_answer(ModelList))
    },
    "/v1/models/{name}": {
        "get": Operation(summary="One of them", tag="models", answers=json_answer(ModelCard), errors=(404,))
    },
    "/tokenize": {
        "post": Operation(
            summary="From a text, or the messages of a chat, to token ids",
            tag="models",
            body=TokenizeBody,
            one_of=("prompt", "messages"),
            example={"prompt": "Hello"},
            answers=json_answer(Tokens),
            errors=(404,),
        )
    },
    "/detokenize": {
        "post": Operation(
            summary="From token ids to text",
            tag="models",
            body=DetokenizeBody,
            required=("tokens",),
            example={"tokens": [1, 2, 3]},
            answers=json_answer(TokenText),
            errors=(404,),
        )
    },
    "/tokenizer_info": {
        "get": Operation(
            summary="The tokenizer's class, special tokens and chat template",
            tag="models",
            answers=json_answer(TokenizerInfo),
        )
    },
}
GENERATION_OPERATIONS = {
    "/v1/completions": {
        "post": Operation(
            summary="Continue a text",
            tag="generation",
            body=CompletionBody,
            required=("prompt",),
            example={"prompt": "Hello", "max_tokens": 16},
            answers=generated(Completion, Events((CompletionChunk,))),
            errors=OF_GENERATION,
        )
    },
    "/v1/chat/completions": {
        "post": Operation(
            summary="Answer a chat",
            tag="generation",
            body=ChatBody,
            required=("messages",),
            example={"messages": HELLO, "max_tokens": 16},
            answers=generated(ChatCompletion, Events((ChatCompletionChunk,))),
            errors=OF_GENERATION,
        )
    },
    "/v1/responses": {
        "post": Operation(
            summary="Answer an input: OpenAI's Responses API",
            tag="generation",
            body=ResponsesBody,
            required=("input",),
            example={"input": "Hello", "max_output_tokens": 16},
            answers=generated(Response, Events(RESPONSE_EVENTS, is_named=True)),
            errors=OF_GENERATION,
        )
    },
    "/v1/responses/{id}": {
        "get": Operation(
            summary="A response that is stored",
            tag="generation",
            query={"stream": Literal["false"]},
            answers=json_answer(Response),
            errors=(400, 404),
        ),
        "delete": Operation(summary="Forget it", tag="generation", answers=json_answer(ResponseDeleted), errors=(404,)),
    },
    "/v1/messages": {
        "post": Operation(
            summary="Answer a conversation: Anthropic's Messages API",
            tag="generation",
            body=MessagesBody,
            required=("messages", "max_tokens"),
            example={"messages": HELLO, "max_tokens": 16},
            answers=generated(AnthropicMessage, Events(MESSAGE_EVENTS, is_named=True)),
            errors=OF_GENERATION,
        )
    },
    "/v1/messages/count_tokens": {
        "post": Operation(
            summary="How many tokens a conversation has",
            tag="generation",
            body=CountTokensBody,
            required=("messages",),
            example={"messages": HELLO},
            answers=json_answer(TokenCount),
        )
    },
}
CORE_OPERATIONS = GENERATION_OPERATIONS | MODEL_OPERATIONS | SERVER_OPERATIONS
