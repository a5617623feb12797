"""A Python re-implementation of SGLang's n-gram trie, from its published description.

Every position of a text begins a path of up to 18 tokens; a node orders its children by recency. All suffixes of the
last 12 tokens are anchors, longest first. Below an anchor the draft grows breadth first, newest child first: narrow and
deep after a long match, wide after a short one, anchor by anchor until the budget is used. Differences from the
original: whole prompts are inserted (there, only a sliding tail, which drafts worse), the size is unlimited, so nothing
is evicted, and padding to a fixed width is not counted as drafted. Times are those of Python, not of the original.

Source: https://github.com/sgl-project/sglang/pull/9873.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from specserve_bench.replay.harness import Draft, DrafterVariant

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DEPTH, MAX_MATCH, MIN_BREADTH, MAX_BREADTH = 18, 12, 1, 10
NARROWING = (MAX_BREADTH - MIN_BREADTH) / MAX_MATCH
"""By how much the breadth shrinks per level, and per token of the match."""

Node = dict[int, "Node"]
"""Children by token, in order of insertion: the newest is last."""


def variants() -> list[DrafterVariant]:
    return [
        DrafterVariant("trie", "cold", TrieDrafter, reused=False),
        DrafterVariant("trie", "warm", TrieDrafter, reused=True),
    ]


class TrieDrafter:
    """Indexes every text it is given; an instance per request sees only that request."""

    def __init__(self) -> None:
        self._root: Node = {}
        self._open: list[Node] = []
        """The ends of the paths that began at the last positions, the oldest and deepest first."""

    def start(self, prompt: Sequence[int]) -> None:
        self._open = []
        self.feed(prompt)

    def feed(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._open = [insert(node, token) for node in (*self._open[1 - MAX_DEPTH :], self._root)]

    def propose(self, limit: int) -> Draft | None:
        tokens: list[int] = []
        parents: list[int] = []
        nodes: dict[tuple[int, int], int] = {}
        depth = len(self._open)
        for anchor in self._open:
            if depth <= MAX_MATCH and len(tokens) < limit:
                breadth = MIN_BREADTH + (MAX_MATCH - depth) * NARROWING
                grow(anchor, breadth, limit, tokens, parents, nodes)
            depth -= 1
        return Draft(tokens, parents, ())

    def stop(self) -> None:
        self._open = []


def insert(node: Node, token: int) -> Node:
    """The child for `token`, new or not, which becomes the newest of its siblings."""
    child = node.pop(token, None)
    if child is None:
        child = {}
    node[token] = child
    return child


def grow(
    anchor: Node, breadth: float, limit: int, tokens: list[int], parents: list[int], nodes: dict[tuple[int, int], int]
) -> None:
    """Add the continuations of `anchor` to the draft; nodes that an earlier anchor added are not added again."""
    queue = deque([(-1, breadth, anchor)])
    while queue and len(tokens) < limit:
        parent, breadth, node = queue.popleft()
        for token, _ in zip(reversed(node), range(max(1, int(breadth))), strict=False):
            at = nodes.setdefault((parent, token), len(tokens))
            if at == len(tokens):
                tokens.append(token)
                parents.append(parent)
                if len(tokens) == limit:
                    return
            queue.append((at, breadth - NARROWING, node[token]))
