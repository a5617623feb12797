"""Requests of every kind for losslessness suites: one list that a plugin's tests run with and without it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import msgspec

from specserve.sampling.seeds import choice_seed
from specserve.types import GenerateRequest, SamplingParams, SpeculationParams, StructuredOutput
from specserve_workbench.testing.toy_tokenizer import VOCAB_SIZE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

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


STRUCTURED = {
    "json_schema": json.dumps(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "maxLength": 12},
                "state": {"enum": ["running", "restarting", "stopped"]},
                "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 999}, "maxItems": 4},
                "is_active": {"type": "boolean"},
            },
            "required": ["name", "state", "sizes", "is_active"],
            "additionalProperties": False,
        }
    ),
    "json_object": "",
    "regex": "(name|number): [a-f]{3}-[0-9]{2,5} as it was(, and so on)?",
    "choice": json.dumps(["the first of them", "the second of them", "none"]),
    "grammar": 'root ::= "SELECT " name (", " name)* " FROM table"\nname ::= [a-z]{1,4}',
    "structural_tag": json.dumps(
        {
            "triggers": ["e"],
            "structures": [{"begin": "e<", "schema": {"enum": ["alpha", "beta"]}, "end": ">"}],
        }
    ),
}
"""A structured output of each kind."""


def structured_requests(kinds: Collection[str]) -> list[GenerateRequest]:
    """Four of each of these kinds, greedy and sampled, with and without other processors."""
    asked: tuple[dict[str, Any], ...] = (
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": 11, "logprobs": 2},
        {"temperature": 0.0, "repetition_penalty": 1.3, "bad_words": ((5,), (7, 9))},
        {"temperature": 1.2, "seed": 3, "top_k": 30, "min_tokens": 2, "logit_bias": {40: 2.0}},
    )
    return [
        toy_request(
            f"{kind} {i}",
            range(i, i + 9),
            max_tokens=48,
            structured_output=StructuredOutput(kind=kind, text=text),  # type: ignore[arg-type]
            **params,
        )
        for kind, text in STRUCTURED.items()
        if kind in kinds
        for i, params in enumerate(asked)
    ]


def without_drafts(requests: Iterable[GenerateRequest]) -> list[GenerateRequest]:
    """The same, each without speculation."""
    return [msgspec.structs.replace(request, speculation=SpeculationParams(enabled=False)) for request in requests]


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
