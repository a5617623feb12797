"""From logits to tokens in one native call: edits, temperature, cutoffs, noise, argmax and log-probabilities.

Decides as the core's `TorchSampler` does, up to the last bits of the noise and of sums. Knows nothing of batches and
drafts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import DraftToken, Sampler, TokenLogprobs
from specserve.api.sampling import (
    GREEDY_BELOW,
    MASK,
    NO_TOKEN,
    each_processor,
    in_target_vocabulary,
    no_token_left,
    processed,
)
from specserve_cpu import _native
from specserve_cpu.dlpack import dlpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import DraftVocabulary, ScoredRow


class CpuSampler(Sampler):
    """`specserve.api.Sampler` for float32 logits on CPU. A NaN logit counts as -inf."""

    def __init__(self, machine: _native.Machine) -> None:
        self.native = _native.Sampler(machine)

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        return self.native.argmax_tokens(dlpack(logits))

    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        tokens = self.native.target_tokens(dlpack(logits), target_rows(logits, rows))
        if NO_TOKEN in tokens:
            raise no_token_left(rows[tokens.index(NO_TOKEN)].request)
        return tokens

    def draft_tokens(
        self, logits: Tensor, rows: Sequence[ScoredRow], vocabulary: DraftVocabulary | None, count: int
    ) -> list[list[DraftToken]]:
        ids = None
        if vocabulary is not None and any(row.request.processors for row in rows):  # their edits name the target's ids
            logits = in_target_vocabulary(logits, vocabulary)
        elif vocabulary is not None:
            ids = dlpack(vocabulary.ids)
        count = min(count, logits.shape[1])
        return by_row(self.native.draft_tokens(dlpack(logits), target_rows(logits, rows), ids, count), count)

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        rows = self.native.token_logprobs(logits, tokens, counts)
        return [TokenLogprobs(token, *row) for token, row in zip(tokens, rows, strict=True)]


def by_row(drafts: tuple[list[int], list[float]], count: int) -> list[list[DraftToken]]:
    """`count` tokens and probabilities of each row; those of probability 0 are none."""
    tokens = list(map(DraftToken, *drafts))
    return [
        [token for token in tokens[begin : begin + count] if token.probability > 0]
        for begin in range(0, len(tokens), count)
    ]


def target_rows(logits: Tensor | None, rows: Sequence[ScoredRow]) -> _native.TargetRows:
    targets = _native.TargetRows()
    for scored in rows:
        row, request, path, *_ = scored
        params = request.params
        temperature = params.temperature if params.temperature >= GREEDY_BELOW else 0.0
        index = request.num_generated + len(path)
        targets.add_row(row, request.seed & MASK, index, temperature, params.top_k, params.top_p, params.min_p)
        if scored.processors:
            assert logits is not None, "processors read the logits"
            apply_processors(targets, logits, scored)
    return targets


def apply_processors(targets: _native.TargetRows, logits: Tensor, scored: ScoredRow) -> None:
    """As edits, if all processors can make edits; else they change a copy of the row, one after the other."""
    if all(state.has_edits for state in scored.processors):
        each_processor(scored, lambda state: state.edit(targets, scored.path))
    else:
        targets.replace_logits(processed(logits[scored.row].clone(), scored).float().contiguous())
