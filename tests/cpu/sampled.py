"""Rows to sample and what their tokens must be: the definitions, in plain Python numbers, one token at a time.

The answer is a set: float32 may decide otherwise where two scores, or a running sum and its border, almost meet.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from native_cases import machine

from specserve.batch.request import Request
from specserve.protocols import ScoredRow
from specserve.sampling.processors import BadWordsProcessor, BiasProcessor, MinTokensProcessor, PenaltiesProcessor
from specserve.testing.reference import gumbel
from specserve.types import GenerateRequest, SamplingParams
from specserve_cpu.sampler import CpuSampler

if TYPE_CHECKING:
    from collections.abc import Sequence

EOS = (0, 2)
CUTS: tuple[dict[str, Any], ...] = (
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
    """Every cut with every kind of edit, greedy and sampled, paths of several lengths."""
    rows = []
    for i in range(count):
        edits = EDITS[i // len(CUTS) % len(EDITS)] if vocab_size > 11 else {}
        params = {"temperature": (1.0, 0.7, 1.3, 0.0, 0.05)[i % 5], **CUTS[i % len(CUTS)], **edits}
        generated = [t % vocab_size for t in range(7, 7 + i % 6)]
        request = admitted(vocab_size, seed=i << 60, prompt=[1 % vocab_size], generated=generated, **params)
        rows.append(ScoredRow(i, request, tuple(t % vocab_size for t in range(5, 5 + i % 4))))
    return rows


def allowed_tokens(logits: Sequence[float], row: ScoredRow) -> set[int]:
    """The tokens that are right, by the definitions; more than one only where they are a hair apart."""
    params, request = row.request.params, row.request
    x = processed(list(logits), request, row.path)
    if params.temperature < SLACK:
        return near_best(x, x)
    warm = [value / params.temperature for value in x]
    index = request.num_generated + len(row.path)
    scores = [value + gumbel(request.seed, index, t) for t, value in enumerate(warm)]
    strict, generous = (
        [score if value >= least else -math.inf for score, value in zip(scores, warm, strict=True)]
        for least in (least_kept(warm, params, -SLACK), least_kept(warm, params, SLACK))
    )
    return near_best(generous, strict)


def near_best(candidates: Sequence[float], certain: Sequence[float]) -> set[int]:
    best = max(certain)
    if best == -math.inf:
        return {0}
    return {t for t, score in enumerate(candidates) if score >= best - SLACK * max(1.0, abs(best))}


def processed(x: list[float], request: Request, path: Sequence[int]) -> list[float]:
    """Minimum length, penalties, bias, bad words; their order matters for the tokens that several touch."""
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


def least_kept(warm: Sequence[float], params: SamplingParams, slack: float) -> float:
    """The smallest value that stays, by sorting everything; `slack` moves the borders of the nucleus and of min-p."""
    ranked = sorted(warm, reverse=True)
    best = ranked[: params.top_k] if params.top_k > 0 else ranked
    least = best[-1]
    if params.top_p < 1.0:
        weights = [math.exp(value - best[0]) for value in best]
        running, total = 0.0, math.fsum(weights)
        for value, weight in zip(best, weights, strict=True):
            least = value
            running += weight / total
            if running >= params.top_p + slack:
                break
    if params.min_p > 0.0:
        least = max(least, ranked[0] + math.log(params.min_p) - slack)
    return least if slack <= 0 or least == -math.inf else least - SLACK * max(1.0, abs(least))
