"""Top-k, top-p and min-p as one threshold per row, found without sorting the vocabulary.

All three keep every token whose logit reaches the threshold; tokens that tie with the last one kept stay.
Order: top-k, then top-p over what top-k left (renormalised), then min-p relative to the best token.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.types import SamplingParams

FIRST_COUNT = 64
GROWTH = 8
"""Top-p looks at the best 64 logits first, then at eight times as many, until they hold the nucleus."""


def has_cutoff(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1.0 or params.min_p > 0.0


def apply_cutoffs(logits: Tensor, params: SamplingParams) -> Tensor:
    """logits: [V] float32 after temperature. Returns them with everything cut off at -inf."""
    threshold = -math.inf
    best: Tensor | None = None
    if 0 < params.top_k < len(logits):
        best = torch.topk(logits, params.top_k).values
        threshold = float(best[-1])
    if params.top_p < 1.0:
        threshold = max(threshold, top_p_threshold(logits, best, params.top_p))
    if params.min_p > 0.0:
        threshold = max(threshold, float(logits.max()) + math.log(params.min_p))
    return logits.masked_fill_(logits < threshold, -math.inf)


def top_p_threshold(logits: Tensor, best: Tensor | None, top_p: float) -> float:
    """The smallest logit of the nucleus (Holtzman et al., 2020); `best`: the descending survivors of top-k."""
    if best is not None:
        return nucleus_end(best, torch.softmax(best, -1), top_p)
    probabilities = torch.softmax(logits, -1)
    count = FIRST_COUNT
    while count < len(logits):
        values, ids = torch.topk(logits, count)
        probs = probabilities[ids]
        if float(probs.sum(dtype=torch.float64)) >= top_p:
            return nucleus_end(values, probs, top_p)
        count *= GROWTH
    values, ids = torch.sort(logits, descending=True)
    return nucleus_end(values, probabilities[ids], top_p)


def nucleus_end(values: Tensor, probs: Tensor, top_p: float) -> float:
    """values: descending logits; probs: their probabilities. The logit at which the running sum reaches top_p."""
    running = torch.cumsum(probs.double(), -1)
    last = int((running < top_p).sum())
    return float(values[min(last, len(values) - 1)])
