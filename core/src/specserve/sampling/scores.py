"""What a target token is the argmax of: processed logits, cut off, scaled by temperature, with Gumbel noise.

Every operation is either exact per element or runs row by row inside torch.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeVar

import torch

from specserve.faults import FAULTS, BadAnswerError, RequestFault
from specserve.sampling.cutoffs import apply_cutoffs, has_cutoff
from specserve.sampling.noise import gumbel_noise
from specserve.sampling.seeds import row_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.processor_state import ProcessorState
    from specserve.batch.request import Request
    from specserve.protocols.sampling import ScoredRow

T = TypeVar("T")
NO_TOKEN = -1
"""What kernels give for a row whose edits left no token."""
GREEDY_BELOW = 1e-5
"""A lower temperature is greedy: dividing by it would leave float32's range."""


def scores(logits: Tensor, rows: Sequence[ScoredRow]) -> Tensor:
    """[len(rows), V]: what the target token of each row is the argmax of."""
    x = logits[[wanted.row for wanted in rows]]
    noisy: list[int] = []
    for i, scored in enumerate(rows):
        if scored.processors:
            had_token = has_token(x[i])
            x[i] = processed(x[i], scored)
            if had_token and not has_token(x[i]):
                raise no_token_left(scored.request)
        if scored.request.params.temperature >= GREEDY_BELOW:
            noisy.append(i)
    if noisy:
        add_noise(x, rows, noisy)
    return x


def has_token(logits: Tensor) -> bool:
    """logits: [V]. A NaN is none."""
    return bool((logits > -math.inf).any())


def no_token_left(request: Request) -> RequestFault:
    """What such a request asks for cannot be had together."""
    reason = (
        "left no token to choose from: what its grammar, biases, bad words and min_tokens allow has nothing in common"
    )
    return RequestFault(request.id, "its logits processors", BadAnswerError(reason))


def processed(logits: Tensor, scored: ScoredRow) -> Tensor:
    """logits: [V] float32, may be changed in place -> what the row's processors make of them."""

    def apply(state: ProcessorState) -> None:
        nonlocal logits
        shape, logits = logits.shape, state.apply(logits, scored.path)
        if not isinstance(logits, torch.Tensor) or logits.shape != shape:
            got = f"{type(logits).__name__}; return a tensor [V]"
            raise BadAnswerError("returned something else than the row of logits", got)

    each_processor(scored, apply)
    return logits


def each_processor(scored: ScoredRow, action: Callable[[ProcessorState], object]) -> None:
    """Call it with the row's states in order; what one raises is the request's fault."""
    for state in scored.processors:
        ask(scored.request, state, action, state)


def ask(request: Request, state: object, action: Callable[..., T], *arguments: object) -> T:
    """What the action returns for a state of the request; what it raises is the request's fault."""
    try:
        return action(*arguments)
    except FAULTS as error:
        part = request.processor_parts[[*map(id, request.processors)].index(id(state))]
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
