"""Our model of SGLang's n-gram trie, from its published description; a reference beside the others, not its code.

Every position of a text begins a path of up to 18 tokens; a node keeps its children by recency. All suffixes of the
last 12 tokens are anchors, longest first. Below an anchor the tree grows breadth first, newest child first: a long
match narrow and deep, a short one wide, one anchor after another until the budget is full. Whole prompts are inserted
(as shipped they enter only through the sliding tail, which is worse). Without a limit of its size, so nothing is
evicted. Its padding to a fixed width is not counted as drafted. Python's time says nothing about the original's.

Source: https://github.com/sgl-project/sglang/pull/9873.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from benchmarks.replay.harness import Contender, Draft

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DEPTH, MAX_MATCH, MIN_BREADTH, MAX_BREADTH = 18, 12, 1, 10
NARROWING = (MAX_BREADTH - MIN_BREADTH) / MAX_MATCH
"""How much narrower a level is than the one above, and an anchor than the next shorter one."""

Node = dict[int, "Node"]
"""Children by token; Python keeps the order of insertion, so the newest is last."""


def contenders() -> list[Contender]:
    return [
        Contender("trie (our model)", "cold", TrieDrafter, keeps=False),
        Contender("trie (our model)", "warm", TrieDrafter, keeps=True),
    ]


class TrieDrafter:
    """Keeps what it has seen: one for each request has its own text alone, one for all shares everything."""

    def __init__(self) -> None:
        self._root: Node = {}
        self._open: list[Node] = []
        """Where the paths that began at the last positions end; the oldest and deepest first."""

    def start(self, prompt: Sequence[int]) -> None:
        self._open = []
        self.feed(prompt)

    def feed(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self._open = [newest(node, token) for node in (*self._open[1 - MAX_DEPTH :], self._root)]

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


def newest(node: Node, token: int) -> Node:
    """The child for `token`, made if need be, as the newest of its siblings."""
    child = node.pop(token, None)
    if child is None:
        child = {}
    node[token] = child
    return child


def grow(
    anchor: Node, breadth: float, limit: int, tokens: list[int], parents: list[int], nodes: dict[tuple[int, int], int]
) -> None:
    """Add what follows `anchor` to the draft; what an earlier anchor put there is passed through, not put twice."""
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
