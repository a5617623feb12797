"""From logits to tokens in one native call per level: edits, temperature, cut-offs, noise, argmax, log-probabilities.

Decides as the core's `TorchSampler` does, up to the last bits of the noise and of sums: rows are described here one by
one and decided there, each in its own fixed order. Knows nothing of batches and drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from specserve.sampling.sampler import GREEDY_BELOW, each_processor, processed
from specserve.sampling.seeds import MASK
from specserve.types import TokenLogprobs
from specserve_cpu import _native
from specserve_cpu.lending import lent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import ScoredRow


class CpuSampler:
    """`specserve.protocols.Sampler` for float32 logits on CPU. A NaN logit counts as -inf."""

    def __init__(self, machine: _native.Machine) -> None:
        self.native = _native.Sampler(machine)

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        return self.native.argmax_tokens(lent(logits))

    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        targets = _native.Targets()
        for row, request, path in rows:
            params = request.params
            temperature = params.temperature if params.temperature >= GREEDY_BELOW else 0.0
            index = request.num_generated + len(path)
            targets.begin(row, request.seed & MASK, index, temperature, params.top_k, params.top_p, params.min_p)
            if request.processors:
                process(targets, logits, row, request, path)
        return self.native.target_tokens(lent(logits), targets)

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        found = self.native.token_logprobs(logits, tokens, counts)
        return [TokenLogprobs(token, *row) for token, row in zip(tokens, found, strict=True)]


def process(targets: _native.Targets, logits: Tensor, row: int, request: Request, path: Sequence[int]) -> None:
    """Take the processors' edits where all make edits; else let them have the row, one after the other."""
    if all(hasattr(state, "edit") for state in request.processors):
        each_processor(request, lambda state: cast("Any", state).edit(targets, path))
    else:
        targets.use(processed(logits[row].clone(), request, path).float().contiguous())
