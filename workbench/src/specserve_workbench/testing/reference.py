"""An independent reference for decoding: one loop, plain Python numbers, no code of the engine.

It shares with the engine only the published definition of the noise. Slow on purpose: hashes with Python
integers, logarithms with `math`, nucleus by a full sort.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from specserve.types import SamplingParams

M64 = 2**64


def reference_generate(
    next_logits: Callable[[list[int]], Sequence[float]],
    prompt: Sequence[int],
    params: SamplingParams,
    eos: Sequence[int],
) -> list[int]:
    """Generate with `next_logits(tokens) -> logits of the next token`. Supports what `reference_token` does."""
    tokens = list(prompt)
    for index in range(params.max_tokens):
        tokens.append(reference_token(list(next_logits(tokens)), params, index))
        if tokens[-1] in eos and not params.ignore_eos:
            break
    return tokens[len(prompt) :]


def reference_token(logits: list[float], params: SamplingParams, index: int) -> int:
    """Temperature, top-k, top-p, min-p and seed; greedy at temperature 0."""
    if params.temperature == 0.0:
        return first_best(logits)
    warm = [x / params.temperature for x in logits]
    order = sorted(range(len(warm)), key=lambda t: -warm[t])
    kept = order[: params.top_k] if params.top_k > 0 else order
    kept = nucleus(warm, kept, params.top_p)
    least = warm[order[0]] + (math.log(params.min_p) if params.min_p else -math.inf)
    allowed = {t for t in kept if warm[t] >= least}
    assert params.seed is not None
    return first_best([x + gumbel(params.seed, index, t) if t in allowed else -math.inf for t, x in enumerate(warm)])


def nucleus(logits: list[float], order: list[int], top_p: float) -> list[int]:
    """The shortest prefix of `order` that holds the mass top_p of it."""
    weights = [math.exp(logits[t] - logits[order[0]]) for t in order]
    running, total = 0.0, math.fsum(weights)
    for count, weight in enumerate(weights, 1):
        running += weight
        if running / total >= top_p:
            return order[:count]
    return order


def first_best(values: list[float]) -> int:
    return max(range(len(values)), key=lambda t: (values[t], -t))


def gumbel(seed: int, index: int, token: int) -> float:
    """-log(-log(1 - w)) with w from the top 32 bits of the hash of (seed, index, token)."""
    row = finalise((finalise(seed) + (index + 1) * 0x9E3779B97F4A7C15) % M64)
    h = finalise((row + (token + 1) * 0x9E3779B97F4A7C15) % M64) >> 32
    return -math.log(-math.log1p(-min((h + 0.5) / 2**32, 1 - 2**-24)))


def finalise(x: int) -> int:
    """SplitMix64's output function."""
    x %= M64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % M64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % M64
    return x ^ (x >> 31)
