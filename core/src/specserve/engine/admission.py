"""Which requests the engine takes, and the reasons it gives for the others.

Every limit that a client can hit is checked here, before anything is allocated. Errors name fields as in the HTTP API.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import CONTEXT_LENGTH_EXCEEDED, QueueFullError, RequestError
from specserve.limits import (
    MAX_ADDITIVE_PENALTY,
    MAX_BAD_WORD_SEQUENCES,
    MAX_BAD_WORDS,
    MAX_CONFIGURED_LOGPROBS,
    MAX_DERIVED_SEED,
    MAX_INT32,
    MAX_LOGIT_BIAS,
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_REPETITION_PENALTY,
    MAX_STOP_STRINGS,
    MAX_TEMPERATURE,
    MIN_REPETITION_PENALTY,
    MIN_SEED,
)
from specserve.namespaces import is_adapter_id

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from specserve.types import GenerateRequest, SamplingParams, StructuredOutput


class EngineLimits(NamedTuple):
    """What this engine can hold."""

    vocab_size: int
    max_model_len: int
    cache_tokens: int
    eos_token_ids: tuple[int, ...] = ()
    output_kinds: frozenset[str] = frozenset()
    """The kinds of structured output that a processor enforces."""
    max_logprobs: int = MAX_LOGPROBS
    serves_adapters: bool = False
    """Whether a plugin computes rows under adapters."""
    drafters: tuple[str, ...] = ()
    """The names of the enabled drafters."""


NO_LIMITS = EngineLimits(
    vocab_size=2**31, max_model_len=2**31, cache_tokens=2**31, max_logprobs=MAX_CONFIGURED_LOGPROBS
)
"""For checks before a model is loaded."""


KEEP_ITS_END = (
    "or have its last tokens kept: truncate_prompt_tokens -1 does so in /v1/completions and /v1/chat/completions, "
    "truncation auto in /v1/responses"
)


def check_request(request: GenerateRequest, limits: EngineLimits) -> None:
    """Raise a `RequestError` unless the engine can serve the request to its end."""
    prompt = request.prompt_token_ids
    if not prompt:
        refuse("prompt", "it has no tokens; give at least one")
    ids_in_range("prompt", prompt, limits.vocab_size)
    if len(prompt) >= limits.max_model_len:
        too_long(len(prompt), f"{limits.max_model_len} tokens", KEEP_ITS_END)
    if len(prompt) >= limits.cache_tokens:
        capacity = f"{limits.cache_tokens} tokens, as many as the KV cache holds"
        too_long(len(prompt), capacity, "or start the server with more --kv-memory")
    check_adapter(request.adapter, limits)
    check_sampling(request.params, limits)
    maximum = request.speculation.max_draft_tokens
    if maximum is not None and maximum < 0:
        refuse("speculation.max_draft_tokens", f"must be at least 0; got {maximum}")
    for name in request.speculation.drafters or ():
        if name not in limits.drafters:
            refuse("speculation.drafters", unknown_drafter(name, limits.drafters))


def unknown_drafter(name: str, served: Sequence[str]) -> str:
    got = f"got {name[:200]!r}"
    if not served:
        return f"this server has no drafter; {got}. Leave it out, or start it with one, such as --plugin ngram"
    return f"must name drafters of this server, which are {', '.join(sorted(served))}; {got}"


def check_adapter(adapter: str, limits: EngineLimits) -> None:
    if not is_adapter_id(adapter):
        refuse("adapter", f"must hold no NUL; got {adapter[:200]!r}")
    if adapter and not limits.serves_adapters:
        refuse("adapter", f"no enabled plugin serves adapters, such as --plugin lora; got {adapter[:200]!r}")


def too_long(count: int, maximum: str, advice: str) -> None:
    """The first sentence is OpenAI's: clients look for it."""
    refuse(
        "prompt",
        f"This model's maximum context length is {maximum}. The prompt has {count} tokens, and the answer needs one. "
        f"Shorten the prompt, {advice}",
        code=CONTEXT_LENGTH_EXCEEDED,
    )


def queue_full(max_waiting: int, seconds: int) -> QueueFullError:
    """`seconds`: how long the queue takes."""
    message = f"{max_waiting} requests are waiting already; try again in {seconds} s, or start the server with more"
    return QueueFullError(f"{message} --max-waiting.", retry_after=seconds)


def check_sampling(p: SamplingParams, limits: EngineLimits) -> None:
    within("max_tokens", p.max_tokens, 1, MAX_INT32)
    if not 0 <= p.min_tokens <= p.max_tokens:
        refuse("min_tokens", f"must be between 0 and {p.max_tokens}, which is max_tokens; got {p.min_tokens}")
    within("temperature", p.temperature, 0.0, MAX_TEMPERATURE)
    within("top_k", p.top_k, -1, MAX_INT32)
    if not 0.0 < p.top_p <= 1.0:
        refuse("top_p", f"must be above 0 and at most 1; got {plain(p.top_p)}")
    within("min_p", p.min_p, 0.0, 1.0)
    within("repetition_penalty", p.repetition_penalty, MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY)
    within("presence_penalty", p.presence_penalty, -MAX_ADDITIVE_PENALTY, MAX_ADDITIVE_PENALTY)
    within("frequency_penalty", p.frequency_penalty, -MAX_ADDITIVE_PENALTY, MAX_ADDITIVE_PENALTY)
    if p.seed is not None:
        within("seed", p.seed, MIN_SEED, MAX_DERIVED_SEED)
    for name, count in (("logprobs", p.logprobs), ("prompt_logprobs", p.prompt_logprobs)):
        if count is not None:
            within(name, count, 0, limits.max_logprobs)
    check_token_lists(p, limits)


def check_token_lists(p: SamplingParams, limits: EngineLimits) -> None:
    at_most("stop", len(p.stop), MAX_STOP_STRINGS)
    if any(not stop for stop in p.stop):
        refuse("stop", "a stop string must not be empty")
    ids_in_range("stop_token_ids", p.stop_token_ids, limits.vocab_size)
    if p.logit_bias:
        at_most("logit_bias", len(p.logit_bias), MAX_LOGIT_BIASES)
        ids_in_range("logit_bias", p.logit_bias, limits.vocab_size)
        for value in p.logit_bias.values():
            within("logit_bias", value, -MAX_LOGIT_BIAS, MAX_LOGIT_BIAS)
    if p.allowed_token_ids is not None:
        if not p.allowed_token_ids:
            refuse("allowed_token_ids", "must name at least one token, or be left out")
        ids_in_range("allowed_token_ids", p.allowed_token_ids, limits.vocab_size)
    if len(p.bad_words) > MAX_BAD_WORD_SEQUENCES:
        allowed = f"{MAX_BAD_WORDS} words, which are {MAX_BAD_WORD_SEQUENCES} token sequences"
        refuse("bad_words", f"at most {allowed}, are allowed; got {len(p.bad_words)} sequences")
    for word in p.bad_words:
        if not word:
            refuse("bad_words", "a bad word must not be empty")
        ids_in_range("bad_words", word, limits.vocab_size)
    some_token_is_left(p, limits)
    wanted = p.structured_output
    if wanted is not None and wanted.kind not in limits.output_kinds:
        refuse(wanted.param, unenforced(wanted, limits.output_kinds))


def unenforced(wanted: StructuredOutput, served: Collection[str]) -> str:
    """No plugin enforces the form that is wanted. Called tools are one, a structural tag."""
    of_tools = wanted.param in ("tool_choice", "tools")
    what = "that the model calls a tool" if of_tools else f"a text in the form {wanted.kind}"
    only = f"; its plugins enforce only {', '.join(sorted(served))}" if served else ""
    how = "start it with --plugin grammar, after pip install specserve-plugin-grammar"
    leave = "Leave tool_choice out, so that the model may choose" if of_tools else f"Leave {wanted.param} out"
    return f"this server cannot enforce {what}{only}. {leave}, or {how}"


def some_token_is_left(p: SamplingParams, limits: EngineLimits) -> None:
    """Refuse what forbids every token from the first one on."""
    banned = {word[0] for word in p.bad_words if len(word) == 1}
    if p.min_tokens:
        banned |= {*p.stop_token_ids, *limits.eos_token_ids}
    if p.allowed_token_ids is not None and banned.issuperset(p.allowed_token_ids):
        refuse("allowed_token_ids", "bad_words or min_tokens forbid every one of them; allow one more")
    if len(banned) >= limits.vocab_size:
        name = "min_tokens" if p.min_tokens else "bad_words"
        refuse(name, f"bad_words, or stop tokens before min_tokens, forbid all {limits.vocab_size} tokens; leave one")


def refuse(param: str, message: str, *, code: str | None = None) -> None:
    raise RequestError(f"{param}: {message}.", param=param, code=code)


def within(param: str, got: float, minimum: float, maximum: float) -> None:
    if math.isnan(got) or not minimum <= got <= maximum:
        refuse(param, f"must be between {plain(minimum)} and {plain(maximum)}; got {plain(got)}")


def plain(number: float) -> float:
    """As a client writes it: 2, not 2.0."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


def at_most(param: str, count: int, maximum: int) -> None:
    if count > maximum:
        refuse(param, f"at most {maximum} entries are allowed; got {count}")


def ids_in_range(param: str, ids: Collection[int], vocab_size: int) -> None:
    for token in (min(ids), max(ids)) if ids else ():
        if not 0 <= token < vocab_size:
            refuse(param, f"token ids are between 0 and {vocab_size - 1}; got {token}")
