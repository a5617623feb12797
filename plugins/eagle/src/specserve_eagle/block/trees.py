"""The tree of a block's most probable prefixes (DDTree, arXiv 2604.12989).

A node stands for the draft tokens on its path, and its survival is the product of their probabilities. Of all paths
that are made of the `topk` likeliest tokens of each place, the `limit` most probable ones are the draft.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from specserve.api import Draft
from specserve.api.drafts import ROOT
from specserve_eagle.block.places import Place
from specserve_eagle.growing import GrowingTree

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import DraftToken
    from specserve_eagle.block.places import Places


class PrefixTree(GrowingTree):
    """Of places whose tokens depend on those before them: level by level."""

    def next_level(self, new: Sequence[int]) -> list[int]:
        """A node that is not among the most probable ones so far never is, and nor are its children."""
        best = set(self.likeliest(range(len(self.tokens)), self.limit))
        return [node for node in new if node in best]


def grow_trees(trees: Sequence[PrefixTree], blocks: Sequence[int], places: Places) -> None:
    """Every tree over its block, all level by level."""
    firsts = [0] * len(trees)
    while going := [i for i, tree in enumerate(trees) if not tree.is_done]:
        level = [
            Place(blocks[i], path, firsts[i] + parent)
            for i in going
            for path, parent in zip(trees[i].paths(), parents_in_level(trees[i]), strict=True)
        ]
        counts = [trees[i].topk for i in going for _ in range(trees[i].num_rows)]
        found = iter(places.best(level, counts))
        begin = 0
        for i in going:
            firsts[i], size = begin, trees[i].num_rows
            begin += size
            trees[i].grow([next(found) for _ in range(size)])


def parents_in_level(tree: PrefixTree) -> list[int]:
    return tree.parent_rows() if tree.depth else [0]


def best_prefixes(places: Sequence[Sequence[DraftToken]], limit: int, source: str) -> Draft | None:
    """Of places whose tokens do not depend on each other: best first. places[i]: the tokens of place i, best first."""
    tokens: list[int] = []
    parents: list[int] = []
    survival: list[float] = []
    waiting: list[tuple[float, int, int, int, int]] = []
    """By falling survival, then in the order in which they were found: the parent of a node that may come next, its
    depth, and its token's rank among those of the place."""
    num_found = 0

    def find(parent: int, depth: int, rank: int) -> None:
        nonlocal num_found
        if depth < len(places) and rank < len(places[depth]):
            above = 1.0 if parent == ROOT else survival[parent]
            heappush(waiting, (-above * places[depth][rank].probability, num_found, parent, depth, rank))
            num_found += 1

    find(ROOT, 0, 0)
    while waiting and len(tokens) < limit:
        negative, _, parent, depth, rank = heappop(waiting)
        tokens.append(places[depth][rank].token)
        parents.append(parent)
        survival.append(-negative)
        find(len(tokens) - 1, depth + 1, 0)
        find(parent, depth, rank + 1)
    if not tokens:
        return None
    return Draft(tokens=tuple(tokens), parents=tuple(parents), survival=tuple(survival), source=source)
