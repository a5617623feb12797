"""Drafts trees with a block head: the pass of the chains, and the most probable prefixes of its places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_eagle.block.drafter import BlockDrafter
from specserve_eagle.block.places import Place, Places
from specserve_eagle.block.trees import PrefixTree, best_prefixes, grow_trees

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import Draft
    from specserve.api.batch import Batch
    from specserve_eagle.block.drafter import Wanted
    from specserve_eagle.block.load import BlockModel
    from specserve_eagle.options import EagleOptions


class BlockTreeDrafter(BlockDrafter):
    """The tokens of a place depend on those before it where there is a Markov head, or processors of the request; else
    a place is read once, for all of its nodes."""

    def __init__(self, model: BlockModel, options: EagleOptions) -> None:
        super().__init__(model, options.max_steps)
        self.topk, self.max_nodes = options.topk, options.max_nodes

    def drafts_of(
        self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[Wanted]
    ) -> list[Draft | None]:
        assert self.passes is not None
        requests, counts = [each.request for each in wanted], [each.places for each in wanted]
        rows = self.passes.rows(committed, hidden, blocks, counts)
        if rows is None:
            rows = self.pieces.rows(committed, hidden, blocks, counts)
        places = Places(self.model.head, rows, requests, counts)
        drafts: list[Draft | None] = [None] * len(wanted)
        apart = [i for i, each in enumerate(wanted) if self.model.head.markov is None and not each.request.processors]
        for i, draft in zip(apart, self.of_separate_places(apart, wanted, places), strict=True):
            drafts[i] = draft
        others = [i for i in range(len(wanted)) if i not in apart]
        for i, draft in zip(others, self.of_places_in_turn(others, wanted, places), strict=True):
            drafts[i] = draft
        return drafts

    def of_separate_places(self, blocks: Sequence[int], wanted: Sequence[Wanted], places: Places) -> list[Draft | None]:
        if not blocks:
            return []
        mask = self.config.mask_token  # of a path its length alone matters
        asked = [Place(block, (mask,) * depth) for block in blocks for depth in range(wanted[block].places)]
        found = iter(places.best(asked, [self.topk] * len(asked)))
        tokens = [[next(found) for _ in range(wanted[block].places)] for block in blocks]
        limits = [self.num_nodes(wanted[block]) for block in blocks]
        return [best_prefixes(each, limit, self.name) for each, limit in zip(tokens, limits, strict=True)]

    def of_places_in_turn(self, blocks: Sequence[int], wanted: Sequence[Wanted], places: Places) -> list[Draft | None]:
        trees = [self.tree(wanted[block]) for block in blocks]
        grow_trees(trees, blocks, places)
        return [tree.draft(self.name) if tree.tokens else None for tree in trees]

    def tree(self, wanted: Wanted) -> PrefixTree:
        limit = self.num_nodes(wanted)
        return PrefixTree(wanted.sequence, limit=limit, steps=wanted.places, topk=min(self.topk, limit))

    def num_nodes(self, wanted: Wanted) -> int:
        return min(wanted.limit, self.max_nodes)
