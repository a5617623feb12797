"""Draft tokens from a draft model's logits, and the probability that each is accepted.

A greedy request is drafted by the most likely tokens. A sampled one is drafted with the noise that its verification
will use: both distributions then choose the same token about as often as they can (Gumbel-max coupling). The
probabilities are those of the scores that the target token would be the argmax of, noise included.
Letters: n rows, D draft vocabulary, V the target's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols.sampling import DraftToken, ScoredRow
from specserve.sampling.scores import scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.protocols.sampling import DraftVocabulary


def draft_tokens(
    logits: Tensor, rows: Sequence[ScoredRow], vocabulary: DraftVocabulary | None, count: int
) -> list[list[DraftToken]]:
    """`specserve.protocols.DraftSampler.draft_tokens` in torch."""
    full = logits if vocabulary is None else in_target_vocabulary(logits, vocabulary)
    probabilities = scores(full, rows).softmax(-1)
    best = probabilities.max(-1, keepdim=True) if count == 1 else probabilities.topk(min(count, full.shape[1]))
    return [
        [DraftToken(token, p) for token, p in zip(*pair, strict=True) if p > 0]  # nor NaN
        for pair in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def in_target_vocabulary(logits: Tensor, vocabulary: DraftVocabulary) -> Tensor:
    """logits: [n, D] -> [n, V], -inf where the draft model has no such token."""
    full = logits.new_full((len(logits), vocabulary.target_size), float("-inf"))
    return full.index_copy_(1, vocabulary.ids, logits)
