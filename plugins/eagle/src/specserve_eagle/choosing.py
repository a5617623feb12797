"""From a draft model's logits to draft tokens, and to the probability that each is accepted.

A greedy request is drafted by the most likely tokens. A sampled one is drafted with the noise that its verification
will use: both distributions then choose the same token about as often as they can (Gumbel-max coupling). The
probabilities are those of the scores that the target token would be the argmax of, noise included.
Letters: n rows, D draft vocabulary, V the target's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.faults import FAULTS
from specserve.protocols import ScoredRow
from specserve.sampling.sampler import is_greedy, scores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request


class Choice(NamedTuple):
    """A draft token, as the target's id, and its probability where its parent is right."""

    token: int
    probability: float


class RowToChoose(NamedTuple):
    """A row of logits: its request and the draft tokens before it."""

    request: Request
    path: tuple[int, ...]


class TokenChooser:
    """`draft_ids`: [D] int64, the target's ids of the draft model's; None where both are the same."""

    def __init__(self, vocab_size: int, draft_ids: Tensor | None) -> None:
        self.vocab_size, self.draft_ids = vocab_size, draft_ids
        self.target_ids: list[int] | None = None if draft_ids is None else draft_ids.tolist()

    def choose(self, logits: Tensor, rows: Sequence[RowToChoose], count: int) -> list[list[Choice]]:
        """logits: [n, D] float32, may be changed in place; the `count` best tokens of each row, best first."""
        sampled = [i for i, row in enumerate(rows) if not is_greedy(row.request)]
        if sampled:
            logits[sampled] = self.noisy(logits[sampled], [rows[i] for i in sampled])
        probabilities = logits.softmax(-1)
        best = probabilities.max(-1, keepdim=True) if count == 1 else probabilities.topk(min(count, logits.shape[1]))
        ids, values = best.indices.tolist(), best.values.tolist()
        return [
            [Choice(self.target_id(i), p) for i, p in zip(*pair, strict=True) if p > 0]  # also no NaN
            for pair in zip(ids, values, strict=True)
        ]

    def target_id(self, draft_id: int) -> int:
        return draft_id if self.target_ids is None else self.target_ids[draft_id]

    def noisy(self, logits: Tensor, rows: Sequence[RowToChoose]) -> Tensor:
        """[n, D]: what the target's token would be the argmax of if these were its logits."""
        full = self.in_target_vocabulary(logits)
        try:
            found = scores(full, [ScoredRow(i, request, path) for i, (request, path) in enumerate(rows)])
        except FAULTS:  # a request's own processor: verification finds it again and names it
            return logits
        return found if self.draft_ids is None else found.index_select(1, self.draft_ids)

    def in_target_vocabulary(self, logits: Tensor) -> Tensor:
        """[n, V]: -inf where the draft model has no such token."""
        if self.draft_ids is None:
            return logits
        full = logits.new_full((len(logits), self.vocab_size), float("-inf"))
        return full.index_copy_(1, self.draft_ids, logits)
