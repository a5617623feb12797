"""The target token of a row: a pure function of its logits, its parameters and the noise of its index.

argmax(processed logit / temperature + Gumbel noise), ties to the lower id; greedy has no noise. Every
operation of `TorchSampler` is either exact per element or runs row by row inside torch, so a row's token cannot
depend on the other rows of the call (tests/sampling checks it).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.faults import FAULTS, BadAnswerError, RequestFault
from specserve.sampling.cutoffs import apply_cutoffs, has_cutoff
from specserve.sampling.noise import gumbel_noise
from specserve.sampling.seeds import row_key
from specserve.types import TokenLogprobs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import ProcessorState, ScoredRow

ROWS_AT_ONCE = 32
"""Rows that get noise in one call: bounds memory at large vocabularies."""

GREEDY_BELOW = 1e-5
"""A lower temperature is greedy: dividing by it would leave float32's range."""


def is_greedy(request: Request) -> bool:
    """Is the target token the argmax of the raw logits?"""
    return request.params.temperature < GREEDY_BELOW and not request.processors


class TorchSampler:
    """`specserve.protocols.Sampler` for every device that torch serves."""

    def argmax_tokens(self, logits: Tensor) -> list[int]:
        tokens: list[int] = logits.max(-1).indices.tolist()  # three times as fast as argmax on CPU, same rule for ties
        return tokens

    def target_tokens(self, logits: Tensor, rows: Sequence[ScoredRow]) -> list[int]:
        tokens: list[int] = []
        for begin in range(0, len(rows), ROWS_AT_ONCE):
            tokens += self.argmax_tokens(scores(logits, rows[begin : begin + ROWS_AT_ONCE]))
        return tokens

    def token_logprobs(self, logits: Tensor, tokens: Sequence[int], counts: Sequence[int]) -> list[TokenLogprobs]:
        return [
            best_of(logprobs, token, count)
            for logprobs, token, count in zip(torch.log_softmax(logits, -1), tokens, counts, strict=True)
        ]


def scores(logits: Tensor, rows: Sequence[ScoredRow]) -> Tensor:
    """[len(rows), V]: what the target token of each row is the argmax of."""
    x = logits[[wanted.row for wanted in rows]]
    noisy: list[int] = []
    for i, (_, request, path) in enumerate(rows):
        if request.processors:
            x[i] = processed(x[i], request, path)
        if request.params.temperature >= GREEDY_BELOW:
            noisy.append(i)
    if noisy:
        add_noise(x, rows, noisy)
    return x


def processed(logits: Tensor, request: Request, path: Sequence[int]) -> Tensor:
    """logits: [V] float32, may be changed in place -> what the request's processors make of them."""

    def apply(state: ProcessorState) -> None:
        nonlocal logits
        shape, logits = logits.shape, state.apply(logits, path)
        if not isinstance(logits, torch.Tensor) or logits.shape != shape:
            raise BadAnswerError("returned something else than the row of logits")

    each_processor(request, apply)
    return logits


def each_processor(request: Request, action: Callable[[ProcessorState], object]) -> None:
    """Call it with the request's states in order; what one raises is the request's fault."""
    for i, state in enumerate(request.processors):
        try:
            action(state)
        except FAULTS as error:
            part = request.processor_parts[i]
            raise RequestFault(request.id, f"the logits processor of {part.plugin}", error, part) from error


def add_noise(x: Tensor, rows: Sequence[ScoredRow], noisy: list[int]) -> None:
    """Scale by temperature, cut off and add the Gumbel noise to the given rows of x, in place."""
    keys = [row_key(rows[i].request.seed, rows[i].request.num_generated + len(rows[i].path)) for i in noisy]
    temperatures = torch.tensor([rows[i].request.params.temperature for i in noisy], device=x.device)
    warm = x[noisy] / temperatures[:, None]
    for at, i in enumerate(noisy):
        if has_cutoff(rows[i].request.params):
            warm[at] = apply_cutoffs(warm[at], rows[i].request.params)
    x[noisy] = warm + gumbel_noise(keys, x.shape[1], x.device)


def best_of(logprobs: Tensor, token: int, count: int) -> TokenLogprobs:
    """logprobs: [V]. The token's own and the `count` best, by (value, lower id)."""
    top: list[tuple[float, int]] = []
    if count:
        worst = torch.topk(logprobs, min(count, len(logprobs))).values[-1]
        ids = torch.nonzero(logprobs >= worst)[:, 0]  # more than `count` where values tie
        top = sorted(zip((-logprobs[ids]).tolist(), ids.tolist(), strict=True))[:count]
    return TokenLogprobs(token, float(logprobs[token]), tuple(i for _, i in top), tuple(-v for v, _ in top))
