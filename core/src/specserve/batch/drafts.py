"""The shape of a draft: its paths, depths, children and cuts, all from the parent links; and who proposed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = -1


def parents_of(draft: Draft) -> tuple[int, ...]:
    """The parent of every node; in a chain it is the node before."""
    return draft.parents if draft.parents is not None else tuple(range(-1, len(draft.tokens) - 1))


def sources_of(draft: Draft) -> tuple[str, ...]:
    """The drafter of every node."""
    return draft.sources if draft.sources is not None else (draft.source,) * len(draft.tokens)


def is_chain(draft: Draft | None) -> bool:
    """Whether every node is the child of the one before. A draft with explicit parents may be a chain too."""
    return draft is None or draft.parents is None or draft.parents == tuple(range(-1, len(draft.tokens) - 1))


def num_leading(draft: Draft | None) -> int:
    """How many leading nodes form a chain from the root; all of them in a chain."""
    if draft is None:
        return 0
    if draft.parents is None:
        return len(draft.tokens)
    return next((node for node, parent in enumerate(draft.parents) if parent != node - 1), len(draft.parents))


def depths_of(draft: Draft) -> list[int]:
    """Depth of every node; a child of the root has depth 1."""
    depths: list[int] = []
    for parent in parents_of(draft):
        depths.append(1 if parent == ROOT else depths[parent] + 1)
    return depths


def paths_of(draft: Draft) -> list[tuple[int, ...]]:
    """For every node the nodes from the root to it, itself included."""
    paths: list[tuple[int, ...]] = []
    for node, parent in enumerate(parents_of(draft)):
        paths.append((node,) if parent == ROOT else (*paths[parent], node))
    return paths


def children_of(draft: Draft) -> dict[int, dict[int, int]]:
    """parent -> {token: child}. Of duplicate siblings the first counts."""
    children: dict[int, dict[int, int]] = {}
    for node, (parent, token) in enumerate(zip(parents_of(draft), draft.tokens, strict=True)):
        children.setdefault(parent, {}).setdefault(token, node)
    return children


def match(draft: Draft, tokens: Sequence[int]) -> tuple[int, int]:
    """The node where the path of right draft tokens ends, as far as `tokens` go, and its depth."""
    node, children = ROOT, children_of(draft)
    for depth, token in enumerate(tokens):
        child = children.get(node, {}).get(token)
        if child is None:
            return node, depth
        node = child
    return node, len(tokens)


def likeliest_chain(draft: Draft) -> Draft | None:
    """The path that follows the child with the highest survival at every node (the first of equals), as a chain."""
    if draft.parents is None:
        return draft
    path: list[int] = []
    at = ROOT
    while children := [node for node, parent in enumerate(draft.parents) if parent == at]:
        at = children[0] if draft.survival is None else max(children, key=draft.survival.__getitem__)
        path.append(at)
    chain = keep(draft, path)
    return chain and msgspec.structs.replace(chain, parents=None)


def depth_first(draft: Draft) -> Draft:
    """The same tree in the order in which it is walked path by path, the likeliest child of each node first (of equals
    the first one): attention computes a path whose nodes follow each other as one, and an accepted path that comes
    first lies where it belongs."""
    parents, survival = draft.parents, draft.survival
    if parents is None or is_chain(draft):
        return draft
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    order: list[int] = []
    waiting = [ROOT]
    while waiting:
        node = waiting.pop()
        order.append(node)
        found = children.get(node, ())
        if len(found) > 1 and survival is not None:
            found = sorted(found, key=lambda child: -survival[child])
        waiting += reversed(found)
    return arranged(draft, order[1:])


def shallow(draft: Draft, depth: int) -> Draft | None:
    """The nodes at most `depth` deep; None when there are none."""
    if len(draft.tokens) <= depth:
        return draft
    return keep(draft, [node for node, d in enumerate(depths_of(draft)) if d <= depth])


def first(draft: Draft, count: int) -> Draft | None:
    """The first `count` nodes; None for none. All of them are the draft itself."""
    if count <= 0:
        return None
    if count >= len(draft.tokens):
        return draft
    parents, survival, sources = draft.parents, draft.survival, draft.sources
    return Draft(
        tokens=draft.tokens[:count],
        parents=None if parents is None else parents[:count],
        survival=None if survival is None else survival[:count],
        source=draft.source,
        sources=None if sources is None else sources[:count],
    )


def continued(tokens: Sequence[int], draft: Draft) -> Draft:
    """The draft after forced tokens, which become nodes before it."""
    count = len(tokens)
    parents, survival = draft.parents, draft.survival
    if parents is not None:
        parents = (*range(-1, count - 1), *(parent + count for parent in parents))
    return Draft(
        tokens=(*tokens, *draft.tokens),
        parents=parents,
        survival=None if survival is None else (*(1.0,) * count, *survival),
        source=draft.source,
    )


def after(draft: Draft, count: int) -> Draft:
    """What follows the first `count` nodes, a chain; there is more after them."""
    parents, survival, sources = draft.parents, draft.survival, draft.sources
    return Draft(
        tokens=draft.tokens[count:],
        parents=None if parents is None else tuple(parent - count for parent in parents[count:]),
        survival=None if survival is None else survival[count:],
        source=draft.source,
        sources=None if sources is None else sources[count:],
    )


def keep(draft: Draft, nodes: Iterable[int]) -> Draft | None:
    """The draft cut down to `nodes`, which must hold every kept node's parent; None when none are left."""
    kept = sorted(nodes)
    if not kept:
        return None
    if kept[-1] == len(kept) - 1:
        return first(draft, len(kept))
    return arranged(draft, kept)


def arranged(draft: Draft, nodes: Sequence[int]) -> Draft:
    """These nodes in this order, in which every node's parent must come before it."""
    new = {ROOT: ROOT} | {node: i for i, node in enumerate(nodes)}
    parents = parents_of(draft)
    return Draft(
        tokens=tuple(draft.tokens[node] for node in nodes),
        parents=None if draft.parents is None else tuple(new[parents[node]] for node in nodes),
        survival=None if draft.survival is None else tuple(draft.survival[node] for node in nodes),
        source=draft.source,
        sources=None if draft.sources is None else tuple(draft.sources[node] for node in nodes),
    )
