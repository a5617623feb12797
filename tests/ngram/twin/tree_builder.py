"""Best-first search for a draft tree. Twin of tree_builder.hpp, with all matches advanced at every node."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Literal, NamedTuple

from specserve_ngram._native import Tuning
from twin.candidates import Position, candidates

if TYPE_CHECKING:
    from twin.candidates import Candidate, CandidateLimits
    from twin.predictor import Features, Predictor

MatchType = Literal["learned", "prob", "bfs"]


class DraftOptions(NamedTuple):
    match_type: MatchType
    candidates: CandidateLimits
    min_breadth: int
    max_depth: int
    min_survival: float


class DraftNode(NamedTuple):
    token: str
    parent: int
    survival: float


class Node(NamedTuple):
    token: str
    depth: int
    survival: float
    score: float
    source: int | None  # that proposed it
    position: Position


class HeapEntry(NamedTuple):
    """Sorts by score, the earlier one first where it is equal."""

    minus_score: float
    order: int
    parent: int
    survival: float
    candidate: Candidate


def breadth_for(match_length: int, options: DraftOptions) -> int:
    limits = options.candidates
    reach, spread = limits.max_match - limits.min_match, limits.per_token - options.min_breadth
    if reach == 0:
        return options.min_breadth
    return limits.per_token - spread * (min(match_length, limits.max_match) - limits.min_match) // reach


def depth_first(draft: list[DraftNode]) -> list[DraftNode]:
    """Children in the order in which they were found."""
    ordered: list[DraftNode] = []

    def visit(children_of: int, parent: int) -> None:
        for i, node in enumerate(draft):
            if node.parent == children_of:
                ordered.append(node._replace(parent=parent))
                visit(i, len(ordered) - 1)

    visit(-1, -1)
    return ordered


class Scorer:
    """Scores the candidates of one node, which come from the longest context down."""

    def __init__(self, node: Node, options: DraftOptions) -> None:
        self.depth, self.options, self.mass = node.depth, options, node.score
        self.breadth = options.candidates.per_token
        self.lengths: list[int] = []

    def score(self, f: Features, survival: float) -> float:
        self.lengths.append(f.match_length)
        if self.options.match_type == "learned":
            return survival
        if self.options.match_type == "bfs":
            self.breadth = breadth_for(self.lengths[0], self.options)
            return -float(self.depth)
        if len(self.lengths) > 1 and self.lengths[-1] != self.lengths[-2]:
            self.mass *= Tuning.ESCAPE_PROBABILITY
        return self.mass * f.count / f.total

    def is_full(self) -> bool:
        return len(self.lengths) >= self.breadth


class TreeBuilder:
    def __init__(self, position: Position, newest: str, predictor: Predictor, options: DraftOptions) -> None:
        self.predictor, self.options = predictor, options
        self.nodes = [Node(newest, 0, 1.0, 1.0, None, position)]
        self.heap: list[HeapEntry] = []
        self.num_pushed = 0

    def build(self, limit: int) -> list[DraftNode]:
        draft: list[DraftNode] = []
        if limit > 0:
            self.expand(0)
        while self.heap and len(draft) < limit:
            best = heapq.heappop(self.heap)
            draft.append(DraftNode(best.candidate.token, best.parent - 1, best.survival))
            self.nodes.append(self.make_node(best))
            if self.nodes[-1].depth < self.options.max_depth:
                self.expand(len(self.nodes) - 1)
        return depth_first(draft)

    def make_node(self, entry: HeapEntry) -> Node:
        parent, (token, source, context, _) = self.nodes[entry.parent], entry.candidate
        sources, text = parent.position.sources, parent.position.text
        matches = [sources[s].contexts.advance(match, token) for s, match in enumerate(parent.position.matches)]
        if source is not None:
            matches[source] = context  # not the longest one, if that did not propose the token
        alignment = parent.position.alignment.copy()
        alignment.advance(text, parent.token, token)
        position = Position(sources, matches, alignment, text)
        return Node(token, parent.depth + 1, entry.survival, -entry.minus_score, source, position)

    def expand(self, at: int) -> None:
        node, min_survival = self.nodes[at], self.options.min_survival
        scorer, survival, misses = Scorer(node, self.options), node.survival, 0
        is_promising = survival >= Tuning.PROMISING_FACTOR * min_survival
        max_misses = Tuning.MAX_MISSES if is_promising else 1
        position = node.position if max_misses > 1 else of_one_source(node)
        for candidate in candidates(position, self.options.candidates):
            p = self.predictor.estimate(candidate.features)
            score = scorer.score(candidate.features, survival * p)
            if survival * p >= min_survival:
                heapq.heappush(self.heap, HeapEntry(-score, self.num_pushed, at, survival * p, candidate))
                self.num_pushed += 1
                misses = 0
            elif candidate.source is not None:
                misses += 1
                if misses >= max_misses:
                    return
            survival *= 1 - p
            if scorer.is_full() or survival < min_survival or survival <= Tuning.MIN_MASS:
                return


def of_one_source(node: Node) -> Position:
    """At an unpromising node only the source that proposed it gives candidates."""
    if node.source is None:
        return node.position
    matches = [match if s == node.source else "" for s, match in enumerate(node.position.matches)]
    return node.position._replace(matches=matches)
