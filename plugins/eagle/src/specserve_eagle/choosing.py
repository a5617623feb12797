"""From a draft model's logits to draft tokens, and to the probability that each is accepted.

A greedy request is drafted by the most likely token. A sampled one is drafted with the noise that its verification
will use: both distributions then choose the same token about as often as they can (Gumbel-max coupling).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.faults import FAULTS
from specserve.protocols import ScoredRow
from specserve.sampling.sampler import is_greedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import Sampler

NO_TEMPERATURE = 1.0


class Choice(NamedTuple):
    """A draft token, as the target's id, and the draft model's probability of it."""

    token: int
    probability: float


class TokenChooser:
    """`draft_ids`: [D] int64, the target's ids of the draft model's; None where both are the same."""

    def __init__(self, sampler: Sampler, vocab_size: int, draft_ids: Tensor | None) -> None:
        self.sampler, self.vocab_size, self.draft_ids = sampler, vocab_size, draft_ids
        self.target_ids: list[int] | None = None if draft_ids is None else draft_ids.tolist()

    def choose(self, logits: Tensor, requests: Sequence[Request], paths: Sequence[tuple[int, ...]]) -> list[Choice]:
        """logits: [n, D] float32; a token for each row, whose request has these draft tokens before it."""
        rows = [i for i, request in enumerate(requests) if not is_greedy(request) or request.processors]
        tokens = self.sampler.argmax_tokens(logits)
        probabilities = self.probabilities(logits, tokens, [temperature_of(request) for request in requests])
        if self.target_ids is not None:
            tokens = [self.target_ids[token] for token in tokens]
        choices = [Choice(*pair) for pair in zip(tokens, probabilities, strict=True)]
        if rows:
            for i, choice in zip(rows, self.sampled(logits, rows, requests, paths), strict=True):
                choices[i] = choice
        return choices

    def sampled(
        self, logits: Tensor, rows: Sequence[int], requests: Sequence[Request], paths: Sequence[tuple[int, ...]]
    ) -> list[Choice]:
        """The tokens that the target would choose if these were its logits."""
        full = self.in_target_vocabulary(logits[rows])
        wanted = [ScoredRow(i, requests[row], paths[row]) for i, row in enumerate(rows)]
        try:
            tokens = self.sampler.target_tokens(full, wanted)
        except FAULTS:  # a request's own processor: verification finds it again and names it
            tokens = self.sampler.argmax_tokens(full)
        temperatures = [temperature_of(requests[row]) for row in rows]
        return [Choice(*pair) for pair in zip(tokens, self.probabilities(full, tokens, temperatures), strict=True)]

    def in_target_vocabulary(self, logits: Tensor) -> Tensor:
        """[n, V]: -inf where the draft model has no such token."""
        if self.draft_ids is None:
            return logits
        full = logits.new_full((len(logits), self.vocab_size), float("-inf"))
        return full.index_copy_(1, self.draft_ids, logits)

    def probabilities(self, logits: Tensor, tokens: Sequence[int], temperatures: Sequence[float]) -> list[float]:
        """Of each row's token at its request's temperature."""
        scaled = logits / logits.new_tensor(temperatures)[:, None]
        chosen = scaled.gather(1, logits.new_tensor(tokens).long()[:, None])[:, 0]
        found: list[float] = (chosen - scaled.logsumexp(1)).exp().tolist()
        return [p if p >= 0 else 0.0 for p in found]  # 0 where the logits are not finite


def temperature_of(request: Request) -> float:
    """What a token's probability is taken at: a greedy request's is the model's own."""
    return NO_TEMPERATURE if is_greedy(request) else request.params.temperature
