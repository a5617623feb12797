"""Drafts that grow level by level, all of a step in the same passes."""

from __future__ import annotations

import time
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import ScoredRow
from specserve.api.batch import to_device
from specserve_eagle.growing import GrowingChain, GrowingTree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import DraftStep, DraftToken
    from specserve_draft_models import FedSequence
    from specserve_eagle.depth import Depth
    from specserve_eagle.growing import Growing
    from specserve_eagle.options import EagleOptions


class Extent(NamedTuple):
    """How large a draft may be."""

    steps: int
    topk: int
    nodes: int

    @classmethod
    def of(cls, options: EagleOptions) -> Extent:
        return cls(options.max_steps, options.topk, options.max_nodes)


def begin_draft(sequence: FedSequence, limit: int, extent: Extent, longest: int) -> Growing:
    """Of at most `limit` nodes, for positions below `longest`."""
    limit = min(limit, extent.nodes)
    steps = min(extent.steps, limit, longest - len(sequence.request.tokens))
    if extent.topk == 1:
        return GrowingChain(sequence, steps)
    return GrowingTree(sequence, limit=limit, steps=steps, topk=min(extent.topk, limit))


def grow_levels(
    drafts: Sequence[Growing],
    hidden: Tensor | None,
    depth: Depth,
    step: Callable[[Sequence[Growing], Tensor | None], DraftStep],
) -> float:
    """Level by level, as long as that pays. hidden: [drafts, H], the own hidden states of their newest rows; `step`: a
    pass over newest levels, with the states of their nodes' parents. The seconds of each pass, 0 where there was
    none."""
    first_rows = list(range(len(drafts)))
    began = time.perf_counter()
    for num_passes in count():
        growing = [i for i, draft in enumerate(drafts) if not draft.is_done]
        if growing:
            growing = [growing[i] for i in depth.deeper([drafts[i] for i in growing])]
        if not growing:
            return (time.perf_counter() - began) / num_passes if num_passes else 0.0
        parents = [first_rows[i] + row for i in growing for row in drafts[i].parent_rows()]
        drafts = [drafts[i] for i in growing]
        made = step(drafts, states_of(hidden, parents))
        first_rows, hidden = add_level(drafts, made.tokens), made.hidden
    raise AssertionError("drafts end")


def rows_of(drafts: Sequence[Growing]) -> list[ScoredRow]:
    """The nodes of all newest levels as rows of a pass."""
    nodes = [(draft.sequence.request, path) for draft in drafts for path in draft.paths()]
    return [ScoredRow(i, request, path) for i, (request, path) in enumerate(nodes)]


def add_level(drafts: Sequence[Growing], tokens: Sequence[Sequence[DraftToken]]) -> list[int]:
    """Give every draft the children of its newest level's nodes. Returns the first row of each draft's level."""
    first, first_rows = 0, []
    for draft in drafts:
        first_rows.append(first)
        count = draft.num_rows
        draft.grow(tokens[first : first + count])
        first += count
    return first_rows


def states_of(hidden: Tensor | None, rows: Sequence[int]) -> Tensor | None:
    """The hidden states of these rows."""
    if hidden is None or rows == list(range(len(hidden))):
        return hidden
    return hidden.index_select(0, to_device(rows, hidden.device))
