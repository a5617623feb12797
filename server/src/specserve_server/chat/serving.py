"""POST /v1/chat/completions: from its body to a request that is ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.errors import RequestError
from specserve_server.bodies.requests import ChatBody
from specserve_server.chat.messages import text_content
from specserve_server.chat.prompt import encode_chat
from specserve_server.chat.response import ChatFormatter
from specserve_server.chat.tool_calling import tool_calling
from specserve_server.generation.choices import make_choice
from specserve_server.generation.engine_requests import check_requests, make_requests, truncate_prompt
from specserve_server.generation.prepared_request import PreparedRequest, new_id, response_id
from specserve_server.generation.reasoning import has_special_tokens, reasoning_after
from specserve_server.generation.sampling_params import requested_max_tokens, to_sampling_params
from specserve_server.serving.respond import serve_generation
from specserve_server.wire.renamed_fields import renamed_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aiohttp import web

    from specserve.types import Reasoning
    from specserve_server.chat.tool_calling import ToolCalling
    from specserve_server.engine_client import EngineClient
    from specserve_server.generation.choices import Choice

CHAT_NAMES = {"logprobs": "top_logprobs"}
"""What a chat body calls the numbers that the engine checks."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    return await serve_generation(request, ChatBody, prepare_request)


def prepare_request(engine: EngineClient, body: ChatBody, model: str, adapter: str) -> PreparedRequest:
    """Slow: renders the template, tokenizes and checks."""
    id = new_id("chatcmpl")
    choices, calling = prepare_choices(engine, body, id, adapter)
    formatter = calling.formatter(ChatFormatter(engine.tokenizer, body))
    return PreparedRequest(id=response_id(id, body), model=model, body=body, formatter=formatter, choices=choices)


class PreparedChoices(NamedTuple):
    choices: Sequence[Choice]
    calling: ToolCalling


def prepare_choices(engine: EngineClient, body: ChatBody, id: str, adapter: str) -> PreparedChoices:
    """What every API of messages has in common: they are translated to a `ChatBody`."""
    refuse_unsupported(body)
    tokenizer = engine.tokenizer
    calling = tool_calling(engine, body)
    ids = encode_chat(engine, body, calling.tools)
    prompt = truncate_prompt(ids, body, engine.max_model_len)
    if not prompt:
        text = "the chat template of this model makes no text of them, and an answer needs a token before it"
        advice = 'send a message with text, and no "add_generation_prompt": false'
        raise RequestError(f"messages: {text}; {advice}.", param="messages")
    continued = text_content(body.messages[-1]) if body.messages and body.continue_final_message else ""
    reasoning = reasoning_after(engine.template, tokenizer, prompt, continued)
    structure = calling.structure
    if structure is not None:
        structure = msgspec.structs.replace(structure, reasoning=before_structure(reasoning, calling))
    max_tokens = checked_max_tokens(body)
    params = to_sampling_params(
        body,
        tokenizer,
        max_tokens=max(1, engine.max_model_len - len(prompt)) if max_tokens is None else max_tokens,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
        echo_logprobs=None,
        structure=structure,
    )
    if calling.shows_special_tokens or (reasoning is not None and has_special_tokens(tokenizer, reasoning)):
        params = msgspec.structs.replace(params, skip_special_tokens=False)
    if calling.stop_token_ids:
        stops = (*params.stop_token_ids, *calling.stop_token_ids)
        params = msgspec.structs.replace(params, stop_token_ids=stops)
    requests = make_requests(id, [(prompt, params)], body, adapter)
    with renamed_fields(CHAT_NAMES):
        check_requests(engine, requests, body)
    choices = [make_choice(i, one, tokenizer, reasoning=reasoning) for i, one in enumerate(requests)]
    return PreparedChoices(choices, calling)


def before_structure(reasoning: Reasoning | None, calling: ToolCalling) -> Reasoning | None:
    """What begins an answer does not stand in front of calls."""
    if reasoning is None or calling.reading is None or not calling.reading.is_all:
        return reasoning
    return msgspec.structs.replace(reasoning, answer="")


def checked_max_tokens(body: ChatBody) -> int | None:
    name, max_tokens = requested_max_tokens(body)
    if max_tokens == 0:
        raise RequestError(f"{name}: must be at least 1; got 0. Leave it out for the rest of the context.", param=name)
    return max_tokens


def refuse_unsupported(body: ChatBody) -> None:
    """Fields that would change the meaning of the response if they were ignored."""
    if body.top_logprobs and not body.logprobs:
        raise RequestError(
            "top_logprobs: needs logprobs true, which asks for log-probabilities at all.", param="top_logprobs"
        )
