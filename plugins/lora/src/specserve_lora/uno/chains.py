"""Draft tokens from the logits of a pass, row by row.

A row decides with the noise and the processors that its verification will use. Requests with processors go on row by
row, since these read the tokens before; of the others only the number of these tokens counts, and all rows are decided
at once.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from specserve.api import DraftToken, ScoredRow
from specserve.api.sampling import choose, first_of_each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import Sampler
    from specserve.api.batch import Request

ANY_TOKEN = 0


def draft_chains(
    sampler: Sampler, logits: Tensor, requests: Sequence[Request], counts: Sequence[int]
) -> list[list[DraftToken]]:
    """logits: [sum of counts, V], counts[i] rows of request i. Its chain ends where a row has no token to give. The
    first row is the next step's own, so its token is certain."""
    firsts = list(accumulate(counts, initial=0))
    plain = [i for i, request in enumerate(requests) if not request.processors]
    chains: list[list[DraftToken]] = [[] for _ in requests]
    rows = [
        ScoredRow(firsts[i] + depth, requests[i], (ANY_TOKEN,) * depth) for i in plain for depth in range(counts[i])
    ]
    found = iter(choose(sampler, logits, rows, None, 1))
    for i in plain:
        chains[i] = first_of_each([next(found) for _ in range(counts[i])])
    going = [i for i, request in enumerate(requests) if request.processors]
    for depth in range(max(counts, default=0)):
        going = [i for i in going if depth < counts[i] and len(chains[i]) == depth]
        rows = [ScoredRow(firsts[i] + depth, requests[i], tuple(token for token, _ in chains[i])) for i in going]
        for i, best in zip(going, choose(sampler, logits, rows, None, 1), strict=True):
            chains[i] += best
    return [[DraftToken(chain[0].token, 1.0), *chain[1:]] if chain else chain for chain in chains]
