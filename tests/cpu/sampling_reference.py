"""Rows to sample, and a reference for their tokens: the definitions, in plain Python floats, one token at a time.

The reference is a set: float32 may decide otherwise if two scores, or a running sum and its target, are almost equal.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from native_cases import machine

from specserve.batch.request import Request
from specserve.protocols import ScoredRow
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, MinTokensProcessor, PenaltiesProcessor
from specserve.types import GenerateRequest, SamplingParams
from specserve_cpu.sampler import CpuSampler
from specserve_workbench.testing.reference import gumbel

if TYPE_CHECKING:
    from collections.abc import Sequence

EOS = (0, 2)
CUTOFFS: tuple[dict[str, Any], ...] = (
    {}, {"top_k": 1}, {"top_k": 5}, {"top_k": 200}, {"top_p": 0.3}, {"top_p": 0.95}, {"top_p": 0.9999}, {"min_p": 0.05},
    {"top_k": 40, "top_p": 0.9}, {"top_k": 100, "top_p": 0.8, "min_p": 0.01},
)  # fmt: skip
EDITS: tuple[dict[str, Any], ...] = (
    {},
    {"repetition_penalty": 1.3, "presence_penalty": 0.3, "frequency_penalty": -0.2},
    {"bad_words": ((5,), (1, 7)), "logit_bias": {3: 2.0, 4: -3.0}, "min_tokens": 4, "stop_token_ids": (6,)},
    {"allowed_token_ids": (1, 3, 8, 9, 11), "logit_bias": {3: 1.5, 10: 9.0}, "repetition_penalty": 0.8},
)
SLACK = 1e-5


@cache
def sampler(isa: str, threads: int = 1) -> CpuSampler:
    return CpuSampler(machine(isa, threads))


def admitted(
    vocab_size: int,
    *,
    seed: int = 0,
    prompt: Sequence[int] = (1, 2),
    generated: Sequence[int] = (),
    eos: Sequence[int] = EOS,
    **params: Any,
) -> Request:
    wire = GenerateRequest(request_id="r", prompt_token_ids=tuple(prompt), params=SamplingParams(**params))
    request = Request.admit(wire, seed=seed, arrival=0.0, order=0, max_len=999)
    request.tokens += generated
    makers = (MinTokensProcessor(eos), PenaltiesProcessor(), BiasProcessor(), BadWordsProcessor())
    started = [maker.start(request, vocab_size) for maker in makers]
    request.processors = [state for state in started if state is not None]
    return request


def varied_rows(count: int, vocab_size: int) -> list[ScoredRow]:
    """All cutoffs with all kinds of edits, greedy and sampled, with paths of several lengths."""
    rows = []
    for i in range(count):
        edits = EDITS[i // len(CUTOFFS) % len(EDITS)] if vocab_size > 11 else {}
        params = {"temperature": (1.0, 0.7, 1.3, 0.0, 0.05)[i % 5], **CUTOFFS[i % len(CUTOFFS)], **edits}
        generated = [t % vocab_size for t in range(7, 7 + i % 6)]
        request = admitted(vocab_size, seed=i << 60, prompt=[1 % vocab_size], generated=generated, **params)
        rows.append(ScoredRow(i, request, tuple(t % vocab_size for t in range(5, 5 + i % 4))))
    return rows


def valid_tokens(logits: Sequence[float], row: ScoredRow) -> set[int]:
    """The valid tokens by the definitions; more than one only where scores are almost equal."""
    params, request = row.request.params, row.request
    x = processed(list(logits), request, row.path)
    if params.temperature < SLACK:
        return near_best(x, x)
    scaled = [value / params.temperature for value in x]
    index = request.num_generated + len(row.path)
    scores = [value + gumbel(request.seed, index, t) for t, value in enumerate(scaled)]
    strict, generous = (
        [score if value >= threshold else -math.inf for score, value in zip(scores, scaled, strict=True)]
        for threshold in (cutoff(scaled, params, -SLACK), cutoff(scaled, params, SLACK))
    )
    return near_best(generous, strict)


def near_best(candidates: Sequence[float], certain: Sequence[float]) -> set[int]:
    best = max(certain)
    if best == -math.inf:
        return {0}
    return {t for t, score in enumerate(candidates) if score >= best - SLACK * max(1.0, abs(best))}


def processed(x: list[float], request: Request, path: Sequence[int]) -> list[float]:
    """Minimum length, penalties, bias, bad words: the order matters for tokens that several of them edit."""
    p, vocab = request.params, range(len(x))
    generated = [*request.tokens[request.prompt_len :], *path]
    text = [*request.tokens[: request.prompt_len], *generated]
    if len(generated) < p.min_tokens:
        x = [-math.inf if t in (*EOS, *p.stop_token_ids) else x[t] for t in vocab]
    for t in set(text):
        x[t] = x[t] / p.repetition_penalty if x[t] > 0 else x[t] * p.repetition_penalty
        x[t] -= p.frequency_penalty * generated.count(t) + p.presence_penalty * (t in generated)
    if p.allowed_token_ids is not None:
        x = [x[t] if t in p.allowed_token_ids else -math.inf for t in vocab]
    x = [x[t] + (p.logit_bias or {}).get(t, 0.0) for t in vocab]
    return [-math.inf if any((*text, t)[-len(word) :] == word for word in p.bad_words) else x[t] for t in vocab]


def cutoff(scaled: Sequence[float], params: SamplingParams, slack: float) -> float:
    """The smallest logit that stays, by a full sort, if top_p were top_p + slack; min_p likewise."""
    ranked = sorted(scaled, reverse=True)
    best = ranked[: params.top_k] if params.top_k > 0 else ranked
    threshold = best[-1]
    if params.top_p < 1.0:
        weights = [math.exp(value - best[0]) for value in best]
        running, total = 0.0, math.fsum(weights)
        for value, weight in zip(best, weights, strict=True):
            threshold = value
            running += weight / total
            if running >= params.top_p + slack:
                break
    if params.min_p > 0.0:
        threshold = max(threshold, ranked[0] + math.log(params.min_p) - slack)
    return threshold if slack <= 0 or threshold == -math.inf else threshold - SLACK * max(1.0, abs(threshold))
