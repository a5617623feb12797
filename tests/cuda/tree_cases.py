"""Forests for the tree kernels and what plain Python says of them, and batches of moves. Runs on any device."""

from __future__ import annotations

import random

import torch
from paged_cases import LEADING, TREE, Shape, World

from specserve.batch.drafts import depths_of, parents_of, paths_of
from specserve.types import Draft
from specserve_cuda.attention.flashinfer_paged import TreeMasks
from specserve_cuda.attention.tree_masks import Forest

WIDE = (-1, *(max(-1, node - 1 - node % 7) for node in range(1, 150)))
"""150 guesses: more than two words of ancestors."""


def draft(parents):
    return Draft(tokens=tuple(range(len(parents))), parents=parents)


def forest_of(shapes, device="cpu"):
    """-> parents, depths, tree_starts, slots, num_words, max_depth of some drafts one after the other."""
    forest = Forest()
    for parents in shapes:
        one = draft(parents)
        forest.add(parents_of(one), depths_of(one))
    tables = (torch.tensor(t, device=device) for t in (forest.parents, forest.depths, forest.tree_starts))
    generator = torch.Generator().manual_seed(1)
    slots = torch.randperm(10_000, generator=generator)[: len(forest.parents)].to(device)
    return *tables, slots, -(-max(map(len, shapes)) // 64), forest.max_depth


def assert_trees_are_right(kernels, device="cpu"):
    """Paths, ancestors and masks against paths in Python."""
    shapes = [TREE, (-1,), WIDE, LEADING]
    parents, depths, tree_starts, slots, num_words, max_depth = forest_of(shapes, device)
    paths = kernels.paths(parents, depths, slots, max_depth).tolist()
    bits = kernels.ancestors(parents, depths, tree_starts, num_words, max_depth).tolist()
    node = 0
    for shape in shapes:
        first = node
        for path in paths_of(draft(shape)):
            expected = [slots[first + ancestor].item() for ancestor in path]
            assert paths[node] == expected + [0] * (max_depth - len(path))
            seen = [guess for guess in range(64 * num_words) if bits[node][guess // 64] >> guess % 64 & 1]
            assert seen == list(path)
            node += 1


def assert_masks_are_right(kernels, window, device="cpu"):
    """The masks of a ragged batch: every row sees the last `window` keys of its path, at their places in node order."""
    world = World(Shape(), device)
    spans = [world.prompt(0, 21), world.tree(250, TREE), world.guesses(61, None, 5), world.tree(30, LEADING, known=3)]
    table = TreeMasks(world.builder.schedule(spans))
    mask, expected = table.custom_mask(kernels, window, world.device), []
    for span in spans:
        known, keys = span.start + span.known, span.start + span.length
        paths = [range(length) for length in range(span.start + 1, known + 1)]
        if span.draft is not None:
            paths += [[*range(known), *(known + node for node in path)] for path in paths_of(span.draft)]
        for path in paths:
            row = torch.zeros(keys, dtype=torch.bool)
            row[list(path)[-window:] if window else list(path)] = True
            expected.append(row)
    assert mask.dtype == torch.bool
    assert torch.equal(mask.cpu(), torch.cat(expected))


def some_moves(count, num_slots, seed=0):
    """Sources and targets that overlap and cross: any order of single copies would be wrong."""
    rng = random.Random(seed)
    slots = rng.sample(range(num_slots), count)
    return slots, rng.sample(slots, count)
