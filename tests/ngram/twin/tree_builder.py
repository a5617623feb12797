"""Grows a draft, best node first. Twin of tree.hpp, with every place found at once."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Literal, NamedTuple

from twin.candidates import candidates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twin.alignment import Trace
    from twin.candidates import Candidate, Source, Window
    from twin.predictor import Predictor

MatchType = Literal["learned", "prob", "bfs"]
LEAST_MASS = 1e-4
PROMISING = 10.0
PATIENCE = 4


class Limits(NamedTuple):
    match_type: MatchType
    window: Window
    min_breadth: int
    max_depth: int
    min_survival: float


class DraftNode(NamedTuple):
    token: str
    parent: int
    survival: float


class Position(NamedTuple):
    sources: Sequence[Source]
    places: Sequence[str]  # the longest context in each source
    trace: Trace
    text: str


class Node(NamedTuple):
    token: str
    depth: int
    survival: float
    score: float
    proposed_by: int | None  # the source
    places: Sequence[str]
    trace: Trace


class Entry(NamedTuple):
    """Sorts by score, the earlier first where it is equal."""

    minus_score: float
    order: int
    parent: int
    survival: float
    candidate: Candidate


def breadth_for(length: int, limits: Limits) -> int:
    window = limits.window
    reach, spread = window.max_match - window.min_match, window.per_token - limits.min_breadth
    if reach == 0:
        return limits.min_breadth
    return window.per_token - spread * (min(length, window.max_match) - window.min_match) // reach


def by_branch(draft: list[DraftNode]) -> list[DraftNode]:
    """Depth first, children in the order in which they were found."""
    ordered: list[DraftNode] = []

    def visit(children_of: int, parent: int) -> None:
        for i, node in enumerate(draft):
            if node.parent == children_of:
                ordered.append(node._replace(parent=parent))
                visit(i, len(ordered) - 1)

    visit(-1, -1)
    return ordered


class TreeGrower:
    def __init__(self, position: Position, predictor: Predictor, limits: Limits) -> None:
        self.position, self.predictor, self.limits = position, predictor, limits
        newest = position.text[-1:]
        self.nodes = [Node(newest, 0, 1.0, 1.0, None, position.places, position.trace)]
        self.heap: list[Entry] = []
        self.order = 0

    def grow(self, limit: int) -> list[DraftNode]:
        draft: list[DraftNode] = []
        if limit > 0:
            self.expand(0)
        while self.heap and len(draft) < limit:
            best = heapq.heappop(self.heap)
            draft.append(DraftNode(best.candidate.token, best.parent - 1, best.survival))
            self.nodes.append(self.made_of(best))
            if self.nodes[-1].depth < self.limits.max_depth:
                self.expand(len(self.nodes) - 1)
        return by_branch(draft)

    def made_of(self, entry: Entry) -> Node:
        parent, (token, source, context, _) = self.nodes[entry.parent], entry.candidate
        sources = self.position.sources
        places = [sources[s].contexts.advance(place, token) for s, place in enumerate(parent.places)]
        if source is not None:
            places[source] = context  # not its longest one, if that did not propose the token
        trace = parent.trace.copy()
        trace.move(self.position.text, parent.token, token)
        return Node(token, parent.depth + 1, entry.survival, -entry.minus_score, source, places, trace)

    def expand(self, at: int) -> None:
        node, limits = self.nodes[at], self.limits
        survival, left, breadth = node.survival, node.score, limits.window.per_token
        patience = PATIENCE if survival >= PROMISING * limits.min_survival else 1
        fails, length = 0, 0
        for heard, candidate in enumerate(candidates(*self.heard_by(node, patience), limits.window)):
            evidence = candidate.evidence
            p = self.predictor.estimate(evidence)
            score = survival * p
            if limits.match_type == "bfs":
                if heard == 0:
                    breadth = breadth_for(evidence.length, limits)
                score = -float(node.depth)
            elif limits.match_type == "prob":
                if heard > 0 and evidence.length != length:
                    left *= 0.5
                score = left * evidence.count / evidence.total
            length = evidence.length
            if survival * p >= limits.min_survival:
                heapq.heappush(self.heap, Entry(-score, self.order, at, survival * p, candidate))
                self.order += 1
                fails = 0
            elif evidence.kind != "aligned":
                fails += 1
                if fails >= patience:
                    return
            survival *= 1 - p
            if heard + 1 >= breadth or survival < limits.min_survival or survival <= LEAST_MASS:
                return

    def heard_by(self, node: Node, patience: int) -> tuple[Sequence[Source], Sequence[str], Trace, str]:
        """At an unpromising node only the source that proposed it is heard."""
        sources, text = self.position.sources, self.position.text
        if patience > 1 or node.proposed_by is None:
            return sources, node.places, node.trace, text
        places = [place if s == node.proposed_by else "" for s, place in enumerate(node.places)]
        return sources, places, node.trace, text
