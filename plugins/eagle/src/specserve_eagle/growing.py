"""The draft of one request while it grows, level by level: the dynamic tree of EAGLE-2 (Li et al., 2024).

Every pass gives each node of the current level `topk` children. The next level is made of the `topk` most probable of
all of these, by the product of the probabilities along their paths; the draft is made of the most probable nodes of all
levels, which holds every node's parent. With one child each it is a chain, which needs no such choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from specserve.api import Draft
from specserve.api.drafts import ROOT
from specserve_draft_models import DraftRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.api import DraftToken
    from specserve_draft_models import FedSequence


class Growing(Protocol):
    """At most `limit` nodes, at most `steps` deep."""

    sequence: FedSequence
    steps: int
    depth: int
    """Levels so far."""

    @property
    def is_done(self) -> bool: ...

    @property
    def num_rows(self) -> int:
        """Nodes of the newest level whose children are wanted."""
        ...

    @property
    def stated(self) -> Sequence[float]:
        """The best survival of each level, as the draft model states it."""
        ...

    def paths(self) -> list[tuple[int, ...]]:
        """Of each node of the newest level the tokens from the root to it, itself included; of the root none."""
        ...

    def parent_rows(self) -> list[int]:
        """Which node of the level before is the parent of each node of the newest level."""
        ...

    def grow(self, choices: Sequence[Sequence[DraftToken]]) -> None:
        """Children of each node of the newest level."""
        ...

    def rows(self) -> DraftRows:
        """The newest level as rows of the next pass."""
        ...

    def likeliest_path(self) -> tuple[int, ...]:
        """The tokens along the path that follows the likeliest child of every node."""
        ...

    def draft(self, source: str) -> Draft: ...


class GrowingChain:
    """`Growing` with one child each."""

    def __init__(self, sequence: FedSequence, steps: int) -> None:
        self.sequence, self.steps = sequence, steps
        self.tokens: tuple[int, ...] = ()
        self.survival: tuple[float, ...] = ()
        self.depth = 0
        self.has_ended = False
        """There was no further token."""

    @property
    def is_done(self) -> bool:
        return self.has_ended or self.depth >= self.steps

    @property
    def num_rows(self) -> int:
        return 1

    @property
    def stated(self) -> Sequence[float]:
        return self.survival

    def paths(self) -> list[tuple[int, ...]]:
        return [self.tokens]

    def parent_rows(self) -> list[int]:
        return [0]

    def grow(self, choices: Sequence[Sequence[DraftToken]]) -> None:
        if not choices[0]:
            self.has_ended = True
            return
        token, probability = choices[0][0]
        self.survival += (probability * self.survival[-1] if self.depth else probability,)
        self.tokens += (token,)
        self.depth += 1

    def rows(self) -> DraftRows:
        return DraftRows(self.sequence, self.tokens, first=self.depth - 1)

    def likeliest_path(self) -> tuple[int, ...]:
        return self.tokens

    def draft(self, source: str) -> Draft:
        return Draft(tokens=self.tokens, survival=self.survival, source=source)


class GrowingTree:
    """`Growing` with several children each. Nodes are numbered as they are found; those whose children are wanted are
    rows of a pass, in the order of the passes."""

    def __init__(self, sequence: FedSequence, *, limit: int, steps: int, topk: int) -> None:
        self.sequence, self.limit, self.steps, self.topk = sequence, limit, steps, topk
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.survival: list[float] = []
        self.depth = 0
        self.stated: list[float] = []
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
    def num_rows(self) -> int:
        return len(self.level)

    def paths(self) -> list[tuple[int, ...]]:
        return [self.path(node) for node in self.level]

    def path(self, node: int) -> tuple[int, ...]:
        tokens = []
        while node != ROOT:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        return tuple(reversed(tokens))

    def parent_rows(self) -> list[int]:
        return [self.place[self.parents[node]] for node in self.level]

    def grow(self, choices: Sequence[Sequence[DraftToken]]) -> None:
        """The best of the children are the next level."""
        found = len(self.tokens)
        for parent, children in zip(self.level, choices, strict=True):
            above = 1.0 if parent == ROOT else self.survival[parent]
            for token, probability in children:
                self.tokens.append(token)
                self.parents.append(parent)
                self.survival.append(above * probability)
        self.depth += 1
        self.place = {node: i for i, node in enumerate(self.level)}
        new = range(found, len(self.tokens))
        self.level = self.next_level(new)
        self.stated += [max(self.survival[node] for node in new)] if new else []

    def next_level(self, new: Sequence[int]) -> list[int]:
        """Those of the newest nodes whose children are wanted."""
        return sorted(self.likeliest(new, self.topk))

    def likeliest(self, nodes: Sequence[int], count: int) -> list[int]:
        """Of equal ones those that were found first, so that no node goes before its parent."""
        return sorted(nodes, key=lambda node: -self.survival[node])[:count]

    def rows(self) -> DraftRows:
        first = len(self.row_of) - 1
        for node in self.level:
            self.row_of[node] = len(self.row_of) - 1
        nodes = [node for node in self.row_of if node != ROOT]
        tokens = tuple(self.tokens[node] for node in nodes)
        return DraftRows(self.sequence, tokens, tuple(self.row_of[self.parents[node]] for node in nodes), first)

    def likeliest_path(self) -> tuple[int, ...]:
        best: dict[int, int] = {}
        for node, parent in enumerate(self.parents):
            if parent not in best or self.survival[node] > self.survival[best[parent]]:
                best[parent] = node
        nodes, at = [], ROOT
        while at in best:
            at = best[at]
            nodes.append(at)
        return tuple(self.tokens[node] for node in nodes)

    def draft(self, source: str) -> Draft:
        """The best nodes."""
        nodes = sorted(self.likeliest(range(len(self.tokens)), self.limit))
        place = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
        return Draft(
            tokens=tuple(self.tokens[node] for node in nodes),
            parents=tuple(place[self.parents[node]] for node in nodes),
            survival=tuple(self.survival[node] for node in nodes),
            source=source,
        )
