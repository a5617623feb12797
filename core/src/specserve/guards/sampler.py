"""A plugin's sampler, whose results are checked before they are used.

The core's own sampler is not checked. An invalid result is a fault of the step, which is tried with fewer requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.faults import BadAnswerError
from specserve.protocols import Sampler
from specserve.types import TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.protocols import ScoredRow


class GuardedSampler(Sampler):
    """`specserve.protocols.Sampler`."""

    def __init__(self, sampler: Sampler) -> None:
        self.sampler = sampler

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        return valid_targets(self.sampler.argmax_tokens(logits), *logits.shape)

    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        return valid_targets(self.sampler.target_tokens(logits, rows), len(rows), logits.shape[1])

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        found = list(self.sampler.token_logprobs(logits, tokens, counts))
        if len(found) != len(tokens) or not all(isinstance(each, TokenLogprobs) for each in found):
            raise BadAnswerError("gave something else than log-probabilities of each token")
        return found


def valid_targets(targets: list[int], count: int, vocab_size: int) -> list[int]:
    if len(targets) != count:
        raise BadAnswerError("gave another number of target tokens than of rows")
    if count == 1:
        fine = type(targets[0]) is int and 0 <= targets[0] < vocab_size
    else:
        fine = not count or (set(map(type, targets)) == {int} and min(targets) >= 0 and max(targets) < vocab_size)
    if not fine:
        raise BadAnswerError("gave a target token outside the vocabulary")
    return targets
