"""POST /v1/completions.

Owns the forms of a prompt, echo, and the shape of its choices. The engine generates; `respond` streams.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from specserve.errors import RequestError
from specserve.limits import MAX_PROMPTS
from specserve.server.choices import make_choice
from specserve.server.logprobs import echoed_logprobs, join_logprobs, legacy_logprobs, prompt_logprobs
from specserve.server.request_bodies import CompletionBody
from specserve.server.sampling_params import check_requests, make_requests, sampling_params, truncate
from specserve.server.serving import Job, answer, new_id

if TYPE_CHECKING:
    from aiohttp import web

    from specserve.server.choices import Choice, Piece
    from specserve.server.engine_client import EngineClient, ServerTokenizer

DEFAULT_MAX_TOKENS = 16


class Prompt(NamedTuple):
    ids: tuple[int, ...]
    text: str
    """For echo; empty where it is not asked."""


@dataclass(frozen=True, slots=True)
class CompletionShape:
    tokenizer: ServerTokenizer
    body: CompletionBody
    whole_object: str = "text_completion"
    chunk_object: str = "text_completion"

    def whole(self, choice: Choice, piece: Piece) -> dict[str, Any]:
        return self.chunk(choice, piece, first=True)

    def chunk(self, choice: Choice, piece: Piece, *, first: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "index": choice.index,
            "text": (choice.prompt_text if first else "") + piece.text,
            "logprobs": None if self.body.logprobs is None else self.logprobs(choice, piece, self.body.logprobs, first),
            "finish_reason": piece.finish_reason,
        }
        prompt_ids = choice.request.prompt_token_ids
        if self.body.return_token_ids:
            offsets = self.offsets(choice, piece)
            entry |= {"token_ids": piece.tokens, "accepted": piece.accepted, "text_offset": offsets}
            if first:
                entry["prompt_token_ids"] = prompt_ids
        if first and self.body.prompt_logprobs is not None:
            scored, most = choice.prompt_logprobs, self.body.prompt_logprobs
            entry["prompt_logprobs"] = prompt_logprobs(self.tokenizer, prompt_ids, scored, most)
        return entry

    def logprobs(self, choice: Choice, piece: Piece, most: int, first: bool) -> dict[str, list[Any]]:
        own = legacy_logprobs(self.tokenizer, piece.logprobs, self.offsets(choice, piece), most)
        if not (first and self.body.echo):
            return own
        prompt_ids = choice.request.prompt_token_ids
        return join_logprobs(echoed_logprobs(self.tokenizer, prompt_ids, choice.prompt_logprobs, most), own)

    def offsets(self, choice: Choice, piece: Piece) -> list[int]:
        """Where each token begins in the choice's text, the echoed prompt included."""
        base = len(choice.prompt_text)
        return [base + offset for offset in piece.offsets]

    def top_level(self, _choice: Choice, /) -> dict[str, Any]:
        return {}


async def completions(request: web.Request) -> web.StreamResponse:
    return await answer(request, CompletionBody, make_job)


def make_job(engine: EngineClient, body: CompletionBody, model: str, namespace: str) -> Job:
    """Tokenises and checks, so it belongs in a thread."""
    refuse_unsupported(body)
    max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
    # Nothing to generate still takes one forward; the engine's token of it is not shown.
    prompt_only = max_tokens == 0
    if prompt_only and not body.echo and body.prompt_logprobs is None:
        raise RequestError("max_tokens must be at least 1, or 0 with echo or prompt_logprobs.", param="max_tokens")
    prompts = [read_prompt(engine, body, prompt) for prompt in list_prompts(body)]
    params = sampling_params(
        body,
        engine.tokenizer,
        max_tokens=max(max_tokens, 1),
        logprobs=body.logprobs,
        echo_logprobs=body.logprobs if body.echo else None,
    )
    id = new_id("cmpl")
    requests = make_requests(id, [(prompt.ids, params) for prompt in prompts], body, namespace)
    check_requests(engine, requests, body)
    skip = body.skip_special_tokens is not False
    choices = [
        make_choice(
            i,
            one,
            engine.tokenizer.stream(one.prompt_token_ids, skip_special_tokens=skip),
            prompt_text=prompts[i // (body.n or 1)].text,
            discard_output=prompt_only,
        )
        for i, one in enumerate(requests)
    ]
    return Job(id=id, model=model, body=body, shape=CompletionShape(engine.tokenizer, body), choices=choices)


def refuse_unsupported(body: CompletionBody) -> None:
    if body.suffix:
        raise RequestError("suffix is not supported.", param="suffix")
    if body.best_of is not None and body.best_of > (body.n or 1):
        raise RequestError(
            f"best_of above n is not supported; got {body.best_of} with n {body.n or 1}.", param="best_of"
        )


def list_prompts(body: CompletionBody) -> list[str | list[int]]:
    """The four forms of `prompt` as a list of texts or id lists."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if not prompt:
        raise RequestError(
            "prompt is required: a string, a list of strings, token ids or lists of them.", param="prompt"
        )
    ids = [item for item in prompt if isinstance(item, int)]
    if len(ids) == len(prompt):
        return [ids]
    if ids:
        raise RequestError(
            "prompt mixes token ids with prompts; give one list of ids or a list of lists.", param="prompt"
        )
    if len(prompt) > MAX_PROMPTS:
        raise RequestError(f"at most {MAX_PROMPTS} prompts per request; got {len(prompt)}.", param="prompt")
    return [item for item in prompt if not isinstance(item, int)]


def read_prompt(engine: EngineClient, body: CompletionBody, prompt: str | list[int]) -> Prompt:
    ids: list[int] = prompt if isinstance(prompt, list) else encode_prompt(engine.tokenizer, body, prompt)
    kept = truncate(ids, body, engine.max_model_len)
    if not kept:
        raise RequestError("the prompt has no tokens.", param="prompt")
    if not body.echo:
        return Prompt(kept, "")
    whole = isinstance(prompt, str) and len(kept) == len(ids)
    return Prompt(kept, prompt if whole and isinstance(prompt, str) else engine.tokenizer.decode(kept))


def encode_prompt(tokenizer: ServerTokenizer, body: CompletionBody, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=body.add_special_tokens is not False)
