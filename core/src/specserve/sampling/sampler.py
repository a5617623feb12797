"""The target token of a row: a pure function of its logits, its parameters and the noise of its index.

argmax(processed logit / temperature + Gumbel noise), ties to the lower id; greedy has no noise. Every
operation of `TorchSampler` is either exact per element or runs row by row inside torch, so a row's token cannot
depend on the other rows of the call (tests/sampling checks it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.protocols import Sampler
from specserve.sampling.drafts import draft_tokens
from specserve.sampling.scores import GREEDY_BELOW, scores
from specserve.types import TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import DraftToken, DraftVocabulary, ScoredRow

ROWS_AT_ONCE = 32
"""Rows that get noise in one call: bounds memory at large vocabularies."""


def is_greedy(request: Request) -> bool:
    """Is the target token the argmax of the raw logits?"""
    return request.params.temperature < GREEDY_BELOW and not request.processors


class TorchSampler(Sampler):
    """For every device that torch serves."""

    records_greedy = True

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        tokens: list[int] = logits.max(-1).indices.tolist()  # three times as fast as argmax on CPU, same rule for ties
        return tokens

    def greedy_tokens(self, logits: Tensor, out: Tensor) -> None:
        torch.argmax(logits, -1, out=out)

    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        tokens: list[int] = []
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            tokens += self.argmax_tokens(scores(logits, rows[begin : begin + ROWS_AT_ONCE]))
        return tokens

    def draft_tokens(
        self, logits: Tensor, rows: Sequence[ScoredRow], vocabulary: DraftVocabulary | None, count: int
    ) -> list[list[DraftToken]]:
        return draft_tokens(logits, rows, vocabulary, count)

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        return [
            best_of(logprobs, token, count)
            for logprobs, token, count in zip(torch.log_softmax(logits, -1), tokens, counts, strict=True)
        ]


def best_of(logprobs: Tensor, token: int, count: int) -> TokenLogprobs:
    """logprobs: [V]. The token's own and the `count` best, by (value, lower id)."""
    top: list[tuple[float, int]] = []
    if count:
        worst = torch.topk(logprobs, min(count, len(logprobs))).values[-1]
        ids = torch.nonzero(logprobs >= worst)[:, 0]  # more than `count` where values tie
        top = sorted(zip((-logprobs[ids]).tolist(), ids.tolist(), strict=True))[:count]
    return TokenLogprobs(token, float(logprobs[token]), tuple(i for _, i in top), tuple(-v for v, _ in top))
