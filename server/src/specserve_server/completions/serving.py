"""POST /v1/completions: from its body to a request that is ready to run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import RequestError
from specserve_server.bodies.requests import CompletionBody
from specserve_server.completions.prompt import encode_prompts
from specserve_server.completions.response import CompletionFormatter
from specserve_server.generation.choices import make_choice
from specserve_server.generation.engine_requests import check_requests, make_requests
from specserve_server.generation.prepared_request import PreparedRequest, new_id, response_id
from specserve_server.generation.sampling_params import requested_max_tokens, to_sampling_params
from specserve_server.generation.structured_output import structured_output
from specserve_server.serving.respond import serve_generation

if TYPE_CHECKING:
    from aiohttp import web

    from specserve_server.engine_client import EngineClient

DEFAULT_MAX_TOKENS = 16


async def completions(request: web.Request) -> web.StreamResponse:
    return await serve_generation(request, CompletionBody, prepare_request)


def prepare_request(engine: EngineClient, body: CompletionBody, model: str, adapter: str) -> PreparedRequest:
    """Slow: tokenizes and checks."""
    max_tokens = checked_max_tokens(body)
    tokenizer = engine.tokenizer
    prompts = encode_prompts(engine, body)
    params = to_sampling_params(
        body,
        tokenizer,
        max_tokens=max(max_tokens, 1),
        logprobs=body.logprobs,
        echo_logprobs=body.logprobs if body.echo else None,
        structure=structured_output(body),
    )
    id = new_id("cmpl")
    requests = make_requests(id, [(prompt.token_ids, params) for prompt in prompts], body, adapter)
    check_requests(engine, requests, body)
    texts = [prompt.echo_text for prompt in prompts for _ in range(body.num_choices)]
    # Scoring a prompt takes one forward pass, in which the engine generates a token; it is not shown.
    choices = [
        make_choice(i, one, tokenizer, echo_text=text, discard_output=max_tokens == 0)
        for i, (one, text) in enumerate(zip(requests, texts, strict=True))
    ]
    formatter = CompletionFormatter(tokenizer, body)
    return PreparedRequest(id=response_id(id, body), model=model, body=body, formatter=formatter, choices=choices)


def checked_max_tokens(body: CompletionBody) -> int:
    """0 scores the prompt only."""
    name, max_tokens = requested_max_tokens(body)
    if max_tokens == 0 and not body.echo and body.prompt_logprobs is None:
        raise RequestError(f"{name}: must be at least 1, or 0 with echo or prompt_logprobs; got 0.", param=name)
    return DEFAULT_MAX_TOKENS if max_tokens is None else max_tokens
