"""The answers of a few requests with drafts and without: what `specserve plugins check --load` compares."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.types import SpeculationParams

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from specserve.engine.async_engine import AsyncEngine
    from specserve.types import GenerateRequest

CAUSE = (
    "A plugin changed a request, or a logits processor treats drafted tokens otherwise than committed "
    "ones: apply(logits, path) must equal apply(logits, ()) after commit(path), and change no state "
    "(docs/plugins/contract.md)."
)
MAX_SHOWN = 8
"""Tokens of an answer."""


class Answers(NamedTuple):
    """`tokens`: by the request's id."""

    tokens: Mapping[str, Sequence[int]]
    seconds: float
    errors: Sequence[str]


def some_requests(engine: AsyncEngine) -> list[GenerateRequest]:
    """Prompts that repeat themselves, greedy and sampled, and text of one token: drafters have something to say."""
    from specserve_workbench.testing.requests import toy_request

    prompt = engine.tokenizer.encode("one two three four, one two three four, one two three four, one two")
    return [
        toy_request("greedy", prompt, max_tokens=24),
        toy_request("sampled", prompt, max_tokens=24, temperature=0.8, seed=1),
        toy_request("penalised", prompt, max_tokens=12, presence_penalty=0.5, logprobs=1),
        toy_request("one token", prompt, max_tokens=24, logit_bias={prompt[0]: 100.0}),
    ]


def without_drafts(requests: Iterable[GenerateRequest]) -> list[GenerateRequest]:
    return [msgspec.structs.replace(request, speculation=SpeculationParams(enabled=False)) for request in requests]


async def answer(engine: AsyncEngine, requests: Sequence[GenerateRequest]) -> Answers:
    """All at once."""
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}
    errors: list[str] = []

    async def read(request: GenerateRequest) -> None:
        async for output in engine.submit(request):
            tokens[request.request_id] += output.tokens
            if output.finish_reason == "error":
                errors.append(output.error or "a request ended with an error.")

    began = perf_counter()
    await asyncio.gather(*map(read, requests))
    return Answers(tokens, perf_counter() - began, errors)


def differences(drafted: Answers, plain: Answers) -> Iterator[str]:
    """A sentence for each request whose answer depends on drafts."""
    for name, got in drafted.tokens.items():
        expected = plain.tokens[name]
        if list(got) == list(expected):
            continue
        pairs = enumerate(zip(got, expected, strict=False))
        at = next((i for i, (one, other) in pairs if one != other), min(len(got), len(expected)))
        texts = f"{shown(got, at)} with them and {shown(expected, at)} without"
        yield f'the answer of the request "{name}" depends on drafts: from token {at} on it is {texts}. {CAUSE}'


def shown(tokens: Sequence[int], at: int) -> str:
    rest = [str(token) for token in tokens[at : at + MAX_SHOWN]]
    return f"[{', '.join(rest)}{', ...' if len(tokens) > at + MAX_SHOWN else ''}]"
