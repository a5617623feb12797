"""From a body to SamplingParams: defaults of the model, then OpenAI's; text to token ids.

Ranges that the engine knows are checked by `engine.check`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specserve.config import SAMPLING_DEFAULTS
from specserve.errors import RequestError
from specserve.types import SamplingParams, StructuredOutput
from specserve_checks.type_words import shown
from specserve_checks.wrong_values import convert

if TYPE_CHECKING:
    from specserve_server.bodies.requests import SamplingBody
    from specserve_server.engine_client import ServerTokenizer

COMMON_FIELDS = (
    "min_tokens",
    *SAMPLING_DEFAULTS,
    "presence_penalty",
    "frequency_penalty",
    "include_stop_str_in_output",
    "skip_special_tokens",
    "ignore_eos",
    "seed",
    "prompt_logprobs",
)
"""Fields of a body that SamplingParams has under the same name and with the same meaning."""
TOKEN_ID = re.compile("0|[1-9][0-9]{0,9}")


def to_sampling_params(
    body: SamplingBody,
    tokenizer: ServerTokenizer,
    *,
    max_tokens: int,
    logprobs: int | None,
    echo_logprobs: int | None,
    structure: StructuredOutput | None,
) -> SamplingParams:
    """`echo_logprobs` scores the prompt for echo, where the body's own prompt_logprobs asks for less. `structure`: the
    form of the text."""
    values: dict[str, object] = dict(tokenizer.sampling_defaults)
    values |= {name: value for name in COMMON_FIELDS if (value := getattr(body, name)) is not None}
    if values.get("top_k") == -1:
        values["top_k"] = 0  # both mean all tokens
    scored = [k for k in (body.prompt_logprobs, echo_logprobs) if k is not None]
    values |= {
        "max_tokens": max_tokens,
        "logprobs": logprobs,
        "prompt_logprobs": max(scored, default=None),
        "stop": stop_strings(body),
        "stop_token_ids": body.stop_token_ids or (),
        "logit_bias": logit_bias(body),
        "allowed_token_ids": unique_ids(body.allowed_token_ids),
        "bad_words": bad_words(body, tokenizer),
        "structured_output": structure,
    }
    return convert(values, SamplingParams, lambda wrong: RequestError(str(wrong)))


def requested_max_tokens(body: SamplingBody) -> tuple[str, int | None]:
    """Its name, for messages, and its value: `max_completion_tokens`, or the older `max_tokens`."""
    if body.max_completion_tokens is not None:
        return "max_completion_tokens", body.max_completion_tokens
    return "max_tokens", body.max_tokens


def stop_strings(body: SamplingBody) -> tuple[str, ...]:
    stops = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    if not all(stops):
        raise RequestError("stop: an empty string would stop everything; leave it out.", param="stop")
    return stops


def logit_bias(body: SamplingBody) -> dict[int, float] | None:
    """JSON's keys are strings: each must be a token id in plain decimal, so that no two name the same token."""
    if not body.logit_bias:
        return None
    for key in body.logit_bias:
        if TOKEN_ID.fullmatch(key) is None:
            raise RequestError(
                f'logit_bias: the keys must be token ids, such as "42"; got {shown(key)}.', param="logit_bias"
            )
    return {int(key): value for key, value in body.logit_bias.items()}


def unique_ids(ids: list[int] | None) -> tuple[int, ...] | None:
    """A body may repeat ids millions of times; every choice processes the list."""
    return None if ids is None else tuple(dict.fromkeys(ids))


def bad_words(body: SamplingBody, tokenizer: ServerTokenizer) -> tuple[tuple[int, ...], ...]:
    """Each word as two token sequences: at the start of a text and after a space."""
    sequences: dict[tuple[int, ...], None] = {}
    for word in body.bad_words or ():
        if not word.strip():
            raise RequestError("bad_words: an empty word cannot be avoided; leave it out.", param="bad_words")
        for text in (word, " " + word.lstrip()):
            ids = tokenizer.encode(text, add_special_tokens=False)
            if ids:
                sequences[tuple(ids)] = None
    return tuple(sequences)
