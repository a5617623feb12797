"""The draft of one request while it grows, level by level: the dynamic tree of EAGLE-2 (Li et al., 2024).

Every pass gives each node of the current level `topk` children. The next level is made of the `topk` most probable of
all of these, by the product of the probabilities along their paths; the draft is made of the most probable nodes of all
levels, which holds every node's parent. With `topk` 1 it is a chain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.batch.drafts import ROOT
from specserve.protocols import DraftRows
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.protocols import DraftSequence, DraftToken


class GrowingDraft:
    """At most `limit` nodes, at most `steps` deep. Nodes are numbered as they are found; those whose children are
    wanted are rows of a pass, in the order of the passes."""

    def __init__(self, sequence: DraftSequence, *, limit: int, steps: int, topk: int) -> None:
        self.sequence, self.limit, self.steps, self.topk = sequence, limit, steps, min(topk, limit)
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.survival: list[float] = []
        self.depth = 0
        self.level: list[int] = [ROOT]
        """The nodes whose children the next choices are."""
        self.place: dict[int, int] = {}
        """Where in the level before each node of that level was."""
        self.row_of: dict[int, int] = {ROOT: ROOT}
        """Node -> its place among the rows of all passes."""

    @property
    def is_done(self) -> bool:
        return self.depth >= self.steps or not self.level

    @property
    def best_survival(self) -> float:
        """Of the newest level."""
        return max(self.survival[node] for node in self.level)

    def likeliest_path(self) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Tokens and survival along the path that follows the likeliest child of every node."""
        best: dict[int, int] = {}
        for node, parent in enumerate(self.parents):
            if parent not in best or self.survival[node] > self.survival[best[parent]]:
                best[parent] = node
        nodes, at = [], ROOT
        while at in best:
            at = best[at]
            nodes.append(at)
        return tuple(self.tokens[node] for node in nodes), tuple(self.survival[node] for node in nodes)

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens from the root to the node, itself included."""
        tokens = []
        while node != ROOT:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(tokens))

    def grow(self, choices: Sequence[Sequence[DraftToken]]) -> None:
        """Children of each node of the level; the best of them are the next level."""
        found = len(self.tokens)
        for parent, children in zip(self.level, choices, strict=True):
            above = 1.0 if parent == ROOT else self.survival[parent]
            for token, probability in children:
                self.tokens.append(token)
                self.parents.append(parent)
                self.survival.append(above * probability)
        self.depth += 1
        self.place = {node: i for i, node in enumerate(self.level)}
        by_survival = sorted(range(found, len(self.tokens)), key=lambda node: -self.survival[node])
        self.level = sorted(by_survival[: self.topk])

    def index_in_level(self, node: int) -> int:
        """Which node of the level before is the parent of this one."""
        return self.place[self.parents[node]]

    def rows(self) -> DraftRows:
        """The level as rows of the next pass."""
        first = len(self.row_of) - 1
        for node in self.level:
            self.row_of[node] = len(self.row_of) - 1
        nodes = [node for node in self.row_of if node != ROOT]
        tokens = tuple(self.tokens[node] for node in nodes)
        if self.topk == 1:
            return DraftRows(self.sequence, tokens, first=first)
        return DraftRows(self.sequence, tokens, tuple(self.row_of[self.parents[node]] for node in nodes), first)

    def draft(self, source: str) -> Draft | None:
        """The best nodes; None where nothing is likely at all."""
        likeliest = sorted(range(len(self.tokens)), key=lambda node: -self.survival[node])[: self.limit]
        nodes = sorted(likeliest)
        place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
        return Draft(
            tokens=tuple(self.tokens[node] for node in nodes),
            parents=None if self.topk == 1 else tuple(place[self.parents[node]] for node in nodes),
            survival=tuple(self.survival[node] for node in nodes),
            source=source,
        )
