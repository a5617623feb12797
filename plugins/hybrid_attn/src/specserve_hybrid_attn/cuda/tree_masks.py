"""Drafts that branch, as the device needs them: the slots of every guess's path, and who is whose ancestor as bits.

Owns the torch form of three small kernels; `cupy_kernels` has another. Knows drafts as parent links and rows as
numbers; nothing of attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from specserve.batch.builder import to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

WORD = 64
"""Bits of a word of ancestors."""
NO_WINDOW = 2**30
"""More keys than a request has."""


class MaskRows(NamedTuple):
    """Per row of a batch, all [T] int64. Row r owns mask[starts[r] : starts[r] + keys[r]].

    It sees the keys [lengths[r] - window, linear[r]), and beyond linear[r] the guesses of its request whose bit is set
    in the ancestors of `nodes[r]`; key linear[r] + j is guess j, node `trees[r] + j` of the forest. nodes[r] is -1 for
    a committed token.
    """

    starts: Tensor
    keys: Tensor
    lengths: Tensor
    linear: Tensor
    nodes: Tensor
    trees: Tensor


class TreeKernels(Protocol):
    """Small kernels over a forest: parents: [N] of each node in the forest, -1 at a root; depths: [N], from 1."""

    def paths(self, parents: Tensor, depths: Tensor, slots: Tensor, deepest: int) -> Tensor:
        """slots: [N] of every node -> [N, deepest]: the slots from the root to the node, then zeros."""
        ...

    def ancestors(self, parents: Tensor, depths: Tensor, firsts: Tensor, words: int, deepest: int) -> Tensor:
        """firsts: [N], the first node of each node's tree -> [N, words] bits: bit j of a node is set where node
        firsts + j is an ancestor of it or itself."""
        ...

    def mask(self, rows: MaskRows, ancestors: Tensor, depths: Tensor, window: int, size: int) -> Tensor:
        """-> [size] bool, the rows' masks one after the other."""
        ...


class TorchTrees(TreeKernels):
    """The same in torch, on any device: a few operations per level, and the host never waits."""

    def paths(self, parents: Tensor, depths: Tensor, slots: Tensor, deepest: int) -> Tensor:
        # one column more, where nodes write that have no ancestor left
        paths = slots.new_zeros(len(parents), deepest + 1)
        at = torch.arange(len(parents), device=parents.device)
        for level in range(deepest):
            step = depths - 1 - level
            paths.scatter_(1, torch.where(step >= 0, step, deepest)[:, None], slots[at][:, None])
            at = parents[at].clamp(min=0)
        return paths[:, :deepest].contiguous()

    def ancestors(self, parents: Tensor, depths: Tensor, firsts: Tensor, words: int, deepest: int) -> Tensor:
        bits = parents.new_zeros(len(parents), words)
        at = torch.arange(len(parents), device=parents.device)
        for level in range(deepest):
            guess = torch.where(level < depths, at - firsts, 0)[:, None]
            bit = (level < depths).to(torch.int64)[:, None] << guess % WORD
            bits.scatter_(1, guess // WORD, bits.gather(1, guess // WORD) | bit)
            at = parents[at].clamp(min=0)
        return bits

    def mask(self, rows: MaskRows, ancestors: Tensor, depths: Tensor, window: int, size: int) -> Tensor:
        owner = torch.repeat_interleave(rows.keys, output_size=size)
        key = torch.arange(size, device=owner.device) - rows.starts[owner]
        lowest = rows.lengths[owner] - window
        seen = (key < rows.linear[owner]) & (key >= lowest)
        node = rows.nodes[owner]
        guess = (key - rows.linear[owner]).clamp_(0, WORD * ancestors.shape[1] - 1)
        bit = (ancestors[node.clamp(min=0), guess // WORD] >> guess % WORD) & 1
        there = (rows.trees[owner] + guess).clamp_(max=len(depths) - 1)
        number = rows.linear[owner] + depths[there] - 1
        return seen | ((node >= 0) & (key >= rows.linear[owner]) & (bit == 1) & (number >= lowest))


class Forest:
    """The branching drafts of a batch, node after node."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.rows: list[int] = []
        self.firsts: list[int] = []
        self.deepest = 0

    def plant(self, parents: Sequence[int], depths: Sequence[int], first_row: int) -> int:
        """Add a draft whose node j is row `first_row + j` of the batch; the number of its first node."""
        first = len(self.parents)
        self.parents += [parent if parent < 0 else first + parent for parent in parents]
        self.depths += depths
        self.rows += range(first_row, first_row + len(parents))
        self.firsts += [first] * len(parents)
        self.deepest = max(self.deepest, *depths)
        return first

    def paths(self, slots: Tensor, kernels: TreeKernels) -> Tensor:
        """slots: [T] of the batch -> [N, deepest]; one unused number where nothing branches."""
        if not self.parents:
            return slots[:1]
        parents, depths, rows = to_device([self.parents, self.depths, self.rows], slots.device)
        return kernels.paths(parents, depths, slots.index_select(0, rows), self.deepest)
