"""Draws every field of SamplingParams, at its limits now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from specserve.limits import (
    MAX_BAD_WORD_SEQUENCES,
    MAX_LOGIT_BIASES,
    MAX_LOGPROBS,
    MAX_STOP_STRINGS,
)
from specserve.sampling.seeds import choice_seed
from specserve.types import SamplingParams, StructuredOutput
from specserve_workbench.testing.requests import STRUCTURED

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from fuzz.drawing.prompts import Tokens

MOST_TOKENS = 160
LARGEST = 2**31 - 1
SEEDS = (0, -1, 7, -(2**63), 2**64 - 1)
OUT_OF_RANGE: tuple[dict[str, Any], ...] = (
    *({"top_p": 0.0}, {"temperature": -0.1}, {"min_p": 1.5}, {"logprobs": MAX_LOGPROBS + 1}, {"stop": ("",)}),
    *({"presence_penalty": 2.1}, {"allowed_token_ids": ()}, {"logit_bias": {0: 100.5}}, {"min_tokens": LARGEST}),
)


class Likely(NamedTuple):
    """What the model may say: an earlier answer, and its text."""

    tokens: Tokens
    text: str


def draw_params(
    rng: random.Random, vocab_size: int, room: int, likely: Likely, kinds: Sequence[str] = ()
) -> SamplingParams:
    """`room`: tokens that fit behind the prompt; `kinds`: of structured output that is served. Some of these are
    refused at admission."""
    most = max(1, min(rng.choice((1, 2, 5, 12, 25, 40, room, room + 5)), MOST_TOKENS))
    fields: dict[str, Any] = {"max_tokens": most, "ignore_eos": rng.random() < 0.5}
    fields |= draw_randomness(rng) | draw_logprobs(rng)
    for chance, draw in ((0.4, draw_cutoffs), (0.3, draw_penalties)):
        if rng.random() < chance:
            fields |= draw(rng)
    if rng.random() < 0.25:
        fields |= draw_biases(rng, vocab_size)
    if rng.random() < 0.2:
        fields["bad_words"] = draw_bad_words(rng, vocab_size, likely.tokens)
    if rng.random() < 0.2:
        fields["min_tokens"] = rng.choice((rng.randint(0, most), most))
    if rng.random() < 0.25:
        fields["stop_token_ids"] = (rng.choice(likely.tokens), rng.randrange(vocab_size))
    if rng.random() < 0.35:
        fields |= draw_stops(rng, likely.text)
    if kinds and rng.random() < 0.6:
        kind = rng.choice(kinds)
        fields["structured_output"] = StructuredOutput(kind=kind, text=STRUCTURED[kind])  # type: ignore[arg-type]
    if rng.random() < 0.02:
        fields |= rng.choice(OUT_OF_RANGE)
    return SamplingParams(**fields)


def draw_randomness(rng: random.Random) -> dict[str, Any]:
    seed = rng.choice((*SEEDS, rng.randrange(1 << 64)))
    if rng.random() < 0.3:
        seed = choice_seed(seed, rng.randrange(3), rng.randrange(4))
    return {"seed": seed, "temperature": rng.choice((0.0, 0.0, 0.0, 0.3, 0.8, 1.0, 1.7, 1e-6, 1e-5, 50.0, 100.0))}


def draw_logprobs(rng: random.Random) -> dict[str, Any]:
    prompt = rng.choice((0, 2, 5, MAX_LOGPROBS)) if rng.random() < 0.2 else None
    return {"logprobs": rng.choice((None, 0, 1, 3, 5, MAX_LOGPROBS)), "prompt_logprobs": prompt}


def draw_cutoffs(rng: random.Random) -> dict[str, Any]:
    choices: dict[str, tuple[float, ...]] = {
        "top_k": (-1, 0, 1, 2, 5, 40, 100000, LARGEST),
        "top_p": (1e-9, 0.1, 0.5, 0.9, 0.999, 1.0),
        "min_p": (0.0, 1e-4, 0.1, 0.5, 1.0),
    }
    return {name: rng.choice(values) for name, values in choices.items() if rng.random() < 0.6}


def draw_penalties(rng: random.Random) -> dict[str, Any]:
    return {
        "repetition_penalty": rng.choice((1.0, 1.1, 2.0, 0.5, 0.01, 100.0)),
        "presence_penalty": rng.choice((0.0, 0.5, -2.0, 2.0)),
        "frequency_penalty": rng.choice((0.0, 0.3, -2.0, 2.0)),
    }


def draw_biases(rng: random.Random, vocab_size: int) -> dict[str, Any]:
    """A bias, an empty one, allowed tokens alone, or both."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.7:
        count = rng.choice((0, 1, 2, 5, 5, min(MAX_LOGIT_BIASES, vocab_size)))
        ids = rng.sample(range(vocab_size), count)
        fields["logit_bias"] = {token: rng.choice((-100.0, -1.0, 0.0, 0.5, 3.0, 100.0)) for token in ids}
    if rng.random() < 0.5:
        count = rng.choice((1, 2, 30, vocab_size))
        fields["allowed_token_ids"] = tuple(rng.sample(range(vocab_size), count))
    return fields


def draw_bad_words(rng: random.Random, vocab_size: int, likely: Tokens) -> tuple[Tokens, ...]:
    at = rng.randrange(len(likely))
    words = [likely[at : at + rng.choice((1, 2, 3))], (rng.randrange(vocab_size),)]
    if rng.random() < 0.1:
        words += [(rng.randrange(vocab_size), rng.randrange(vocab_size)) for _ in range(MAX_BAD_WORD_SEQUENCES - 2)]
    return tuple(words)


def draw_stops(rng: random.Random, text: str) -> dict[str, Any]:
    begin = rng.randrange(len(text)) if text else 0
    stops = {text[begin : begin + rng.choice((1, 2, 3, 7))] or "e", rng.choice(("e", "zz", "th", " ", "\ufffd"))}
    if rng.random() < 0.1:
        stops |= {f"stop {i}" for i in range(MAX_STOP_STRINGS - 2)}
    return {
        "stop": tuple(sorted(stops)),
        "include_stop_str_in_output": rng.random() < 0.5,
        "skip_special_tokens": rng.random() < 0.7,
    }
