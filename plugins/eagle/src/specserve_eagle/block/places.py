"""The tokens that come at the places of blocks: by the rows' logits, the Markov head and the confidence head.

Letters: n places, D draft vocabulary, H the head's hidden size, r rank of the Markov head.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import DraftToken, ScoredRow
from specserve.api.batch import to_device
from specserve.api.models import in_tiles
from specserve.api.sampling import choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import BlockRows
    from specserve.api.batch import Request
    from specserve.api.models import BlockHead


ROW_TILE = 32
"""Of torch's sigmoids and hyperbolic tangents, the last bits of which depend on where a number lies in its tensor."""

ROWS_AT_ONCE = 64
"""Places that are scored together: each has logits of the whole draft vocabulary."""


class Place(NamedTuple):
    """Where a token is wanted."""

    block: int
    path: tuple[int, ...]
    """The draft tokens before it."""
    parent: int = 0
    """Where the path's last token was found: at which of the places of the call before."""


class Places:
    """Of one block for each request: counts[i] of block i, one for each of its rows."""

    def __init__(self, head: BlockHead, rows: BlockRows, requests: Sequence[Request], counts: Sequence[int]) -> None:
        self.head, self.rows, self.requests, self.counts = head, rows, requests, counts
        self.kernels = head.decoder.kernels
        self.in_tiles = partial(in_tiles, self.kernels.row_tile)
        self.in_fixed_tiles = partial(in_tiles, self.kernels.row_tile or ROW_TILE)
        self.firsts = list(accumulate(counts, initial=0))
        self.memory: Tensor | None = None
        """Of a recurrent Markov head, behind the places of the call before: [n, r]."""

    def best(self, places: Sequence[Place], counts: Sequence[int]) -> list[list[DraftToken]]:
        """For each place its likeliest tokens, best first: at most as many as its count. A recurrent Markov head is
        asked depth by depth. Scored in parts: the places of many trees are more rows than memory is kept for."""
        before = self.memory_before(places)
        found: list[list[DraftToken]] = []
        after: list[Tensor] = []
        for first in range(0, len(places), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            tokens, memory = self.best_of_part(places[part], counts[part], None if before is None else before[part])
            found += tokens
            after += [] if memory is None else [memory]
        self.memory = torch.cat(after) if after else None
        return found

    def best_of_part(
        self, places: Sequence[Place], counts: Sequence[int], memory: Tensor | None
    ) -> tuple[list[list[DraftToken]], Tensor | None]:
        """memory: before the places. Their tokens, and the memory behind them."""
        rows = to_device([self.firsts[place.block] + len(place.path) for place in places], self.rows.logits.device)
        scores = self.rows.logits.index_select(0, rows)
        state = None if self.rows.states is None else self.rows.states.index_select(0, rows)
        entry, after = self.entries(places), None
        if entry is not None and self.head.markov is not None:
            read, after = self.read_by_markov(entry, state, memory)
            scores = scores + self.in_tiles(self.head.markov.out, read).float()
        scored = [ScoredRow(k, self.requests[place.block], place.path) for k, place in enumerate(places)]
        best = choose(self.kernels.sampler, scores, scored, self.head.vocabulary, max(counts))
        best = [tokens[:count] for tokens, count in zip(best, counts, strict=True)]
        sure = self.confidences(state, entry)
        return best if sure is None else list(map(with_confidence, best, sure)), after

    def entries(self, places: Sequence[Place]) -> Tensor | None:
        """[n, r]: of the Markov head, for the token before each place."""
        markov = self.head.markov
        if markov is None:
            return None
        before = [place.path[-1] if place.path else self.requests[place.block].tokens[-1] for place in places]
        return markov.entry.index_select(0, to_device(before, markov.entry.device))

    def memory_before(self, places: Sequence[Place]) -> Tensor | None:
        parents = [place.parent for place in places]
        if self.memory is None or parents == list(range(len(self.memory))):
            return self.memory
        return self.memory.index_select(0, to_device(parents, self.memory.device))

    def read_by_markov(
        self, entry: Tensor, state: Tensor | None, memory: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """entry: [n, r]; state: [n, H]; memory: [n, r], None at the first place. What `MarkovHead.out` reads, and the
        memory of the next place."""
        markov = self.head.markov
        assert markov is not None
        if markov.gate is not None:
            assert state is not None, "the Markov head reads states"
            return self.in_fixed_tiles(gated(markov.gate), entry, state), None
        if markov.joint is not None:
            assert state is not None, "the Markov head reads states"
            before = torch.zeros_like(entry) if memory is None else memory
            both = self.in_fixed_tiles(remembered(markov.joint), entry, state, before)
            read, after = both.chunk(2, -1)
            return read.contiguous(), after.contiguous()
        return entry, None

    def confidences(self, states: Tensor | None, entry: Tensor | None) -> list[float] | None:
        """[n]: each row's; None where the head states none."""
        if states is None or self.head.confidence is None:
            return None
        inputs = torch.cat((states, entry), 1) if self.head.judges_token and entry is not None else states
        found: list[float] = self.in_tiles(self.head.confidence, inputs)[:, 0].float().sigmoid().tolist()
        return found


def chains_of(places: Places) -> list[list[DraftToken]]:
    """The likeliest token of every place behind those before it, as far as there is one: a chain for each block."""
    chains: list[list[DraftToken]] = [[] for _ in places.counts]
    level = [Place(block, ()) for block, count in enumerate(places.counts) if count]
    while level:
        following: list[Place] = []
        for i, (place, found) in enumerate(zip(level, places.best(level, [1] * len(level)), strict=True)):
            chains[place.block] += found
            if found and len(chains[place.block]) < places.counts[place.block]:
                following.append(Place(place.block, (*place.path, found[0].token), i))
        level = following
    return chains


def with_confidence(tokens: Sequence[DraftToken], sure: float) -> list[DraftToken]:
    """The tokens of a place, best first. `sure` is the probability of the first one; those of the others are lowered by
    one factor, so that together they are at most what is left, and none comes nearer to the first. None where
    `sure` is NaN."""
    if not tokens or math.isnan(sure):
        return []
    first, *others = tokens
    left = max(1.0 - first.probability, sum(token.probability for token in others))
    factor = min(sure / first.probability, (1.0 - sure) / left) if others else 0.0
    return [DraftToken(first.token, sure), *(DraftToken(token, factor * p) for token, p in others)]


def gated(gate: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """See `MarkovHead.gate`."""
    return lambda entry, state: gate(torch.cat((state, entry), -1)).sigmoid() * entry


def remembered(joint: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """See `MarkovHead.joint`. [n, 2 r]: what `out` reads, and the memory of the next place."""

    def step(entry: Tensor, state: Tensor, memory: Tensor) -> Tensor:
        stays, comes, read = joint(torch.cat((memory, entry, state), -1)).chunk(3, -1)
        share = stays.sigmoid()
        return torch.cat((read.tanh(), share * memory + (1 - share) * comes.tanh()), -1)

    return step
