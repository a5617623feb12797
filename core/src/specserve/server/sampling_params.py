"""Wire body -> SamplingParams and GenerateRequests, one per choice.

Owns defaults (the model's own, then OpenAI's) and what can be wrong with a body before the engine looks at
it. Ranges that the engine knows are checked by `engine.check`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from specserve.errors import RequestError
from specserve.limits import MAX_SEQUENCES
from specserve.sampling.seeds import choice_seed
from specserve.types import GenerateRequest, SamplingParams, SpeculationParams

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.server.engine_client import EngineClient, ServerTokenizer
    from specserve.server.request_bodies import SamplingBody

MODEL_DEFAULTS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
GIVEN = (
    "min_tokens",
    *MODEL_DEFAULTS,
    "presence_penalty",
    "frequency_penalty",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "ignore_eos",
    "seed",
    "prompt_logprobs",
)
"""Fields of a body that are fields of SamplingParams of the same name and meaning."""
TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")


def sampling_params(
    body: SamplingBody, tokenizer: ServerTokenizer, *, max_tokens: int, logprobs: int | None, echo_logprobs: int | None
) -> SamplingParams:
    """`echo_logprobs` scores the prompt for echo, where the body's own prompt_logprobs asks for less."""
    values = {name: tokenizer.sampling_defaults[name] for name in MODEL_DEFAULTS if name in tokenizer.sampling_defaults}
    values |= {name: value for name in GIVEN if (value := getattr(body, name)) is not None}
    if values.get("top_k") == -1:
        values["top_k"] = 0  # both mean all tokens
    scored = [k for k in (body.prompt_logprobs, echo_logprobs) if k is not None]
    try:
        return msgspec.convert(
            {
                **values,
                "max_tokens": max_tokens,
                "logprobs": logprobs,
                "prompt_logprobs": max(scored, default=None),
                "stop": stop_strings(body),
                "stop_token_ids": body.stop_token_ids or (),
                "logit_bias": logit_bias(body),
                "allowed_token_ids": distinct(body.allowed_token_ids),
                "bad_words": bad_words(body, tokenizer),
            },
            SamplingParams,
        )
    except msgspec.ValidationError as error:
        raise RequestError(f"sampling parameters: {error}.") from None


def speculation_params(body: SamplingBody) -> SpeculationParams:
    wire = body.speculation
    if wire is None:
        return SpeculationParams()
    return SpeculationParams(enabled=wire.enabled is not False, max_draft_tokens=wire.max_draft_tokens)


def stop_strings(body: SamplingBody) -> tuple[str, ...]:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if not all(stops):
        raise RequestError("stop: an empty string would stop everything.", param="stop")
    return stops


def logit_bias(body: SamplingBody) -> dict[int, float] | None:
    """JSON's keys are strings: each must be a token id in its one usual form, so that no two name the same token."""
    if not body.logit_bias:
        return None
    for key in body.logit_bias:
        if TOKEN_ID.fullmatch(key) is None:
            raise RequestError(
                f'logit_bias: the keys must be token ids, such as "42"; got {key[:40]!r}.', param="logit_bias"
            )
    return {int(key): value for key, value in body.logit_bias.items()}


def distinct(ids: list[int] | None) -> tuple[int, ...] | None:
    """A body may hold millions of ids; every choice looks at all that are left."""
    return None if ids is None else tuple(dict.fromkeys(ids))


def bad_words(body: SamplingBody, tokenizer: ServerTokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as it is tokenised at the start of a text and after a space."""
    found: dict[tuple[int, ...], None] = {}
    for word in body.bad_words or ():
        if not word.strip():
            raise RequestError("bad_words: an empty word cannot be avoided.", param="bad_words")
        for text in (word, " " + word.lstrip()):
            ids = tokenizer.encode(text, add_special_tokens=False)
            if ids:
                found[tuple(ids)] = None
    return tuple(found)


def truncate(ids: Sequence[int], body: SamplingBody, max_model_len: int) -> tuple[int, ...]:
    """The last `truncate_prompt_tokens` tokens; -1 is as many as the context has beside one new token."""
    keep = body.truncate_prompt_tokens
    if keep is None:
        return tuple(ids)
    keep = max_model_len - 1 if keep == -1 else keep
    if keep == 0:
        raise RequestError("truncate_prompt_tokens must be -1 or at least 1.", param="truncate_prompt_tokens")
    return tuple(ids[-keep:])


def make_requests(
    request_id: str, prompts: Sequence[tuple[tuple[int, ...], SamplingParams]], body: SamplingBody, namespace: str
) -> list[GenerateRequest]:
    """n requests per prompt, prompt after prompt; choice j of prompt i has a seed of its own."""
    n = body.n or 1
    if len(prompts) * n > MAX_SEQUENCES:
        raise RequestError(f"prompts times n must be at most {MAX_SEQUENCES}; got {len(prompts)} x {n}.", param="n")
    return [
        GenerateRequest(
            request_id=f"{request_id}-{i * n + j}",
            prompt_token_ids=prompt,
            params=msgspec.structs.replace(params, seed=choice_seed(params.seed, i, j)),
            speculation=speculation_params(body),
            namespace=namespace,
            priority=body.priority or 0,
        )
        for i, (prompt, params) in enumerate(prompts)
        for j in range(n)
    ]


def check_requests(engine: EngineClient, requests: Sequence[GenerateRequest], body: SamplingBody) -> None:
    """Ask the engine about one choice of each prompt: the others differ in nothing that it could refuse."""
    for request in requests[:: body.n or 1]:
        engine.check(request)
