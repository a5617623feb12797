"""Requests of every kind for losslessness suites: one list that a plugin's tests run with and without it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from specserve.sampling.seeds import choice_seed
from specserve.testing.toy_tokenizer import VOCAB_SIZE
from specserve.types import GenerateRequest, SamplingParams, SpeculationParams

if TYPE_CHECKING:
    from collections.abc import Sequence

TOY_VOCAB = VOCAB_SIZE


def toy_request(
    request_id: str, prompt: Sequence[int], *, speculation: SpeculationParams | None = None, **params: Any
) -> GenerateRequest:
    """A greedy request of 16 tokens unless `params` say otherwise."""
    sampling = SamplingParams(**({"temperature": 0.0, "max_tokens": 16} | params))
    return GenerateRequest(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        params=sampling,
        speculation=speculation or SpeculationParams(),
    )


def varied_requests(count: int, *, vocab_size: int = TOY_VOCAB, seed: int = 0) -> list[GenerateRequest]:
    """Greedy and sampled, with and without every processor, prompts of many lengths, some that share a prefix."""
    rng = random.Random(seed)
    shared = [rng.randrange(vocab_size - 10) for _ in range(70)]
    requests = []
    for i in range(count):
        prompt = [rng.randrange(vocab_size - 10) for _ in range(rng.choice((1, 3, 17, 40, 100, 300)))]
        params: dict[str, Any] = {
            "max_tokens": rng.choice((1, 5, 20, 40)),
            "temperature": rng.choice((0.0, 0.0, 0.8, 1.0)),
            "seed": choice_seed(7, i // 4, i % 4),
            "logprobs": rng.choice((None, 0, 3)),
        }
        if i % 3 == 0:
            params |= {"presence_penalty": 0.5, "frequency_penalty": 0.2, "repetition_penalty": 1.2}
        if i % 5 == 0:
            params |= {"top_k": 20, "top_p": 0.9, "min_p": 0.01}
        if i % 4 == 0:
            params |= {"bad_words": ((5,), (7, 9)), "logit_bias": {3: 2.0, 11: -5.0}}
        if i % 7 == 0:
            params |= {"min_tokens": 1, "stop_token_ids": (8, 9, 10)}
        if i % 6 == 0:
            params |= {"stop": ("e", "zz"), "max_tokens": 40}
        requests.append(toy_request(str(i), shared + prompt if i % 3 == 1 else prompt, **params))
    return requests
