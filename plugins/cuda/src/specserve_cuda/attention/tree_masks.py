"""Draft trees as the device needs them: the slots along each node's path, and each node's ancestors as bits.

Owns the torch version of three small kernels; `cupy_kernels` has another. A draft is its parent links, a row is a few
numbers; nothing here knows attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch

from specserve.api.batch import to_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

WORD_BITS = 64
"""Ancestor bits are stored in words of this size."""
NO_WINDOW = 2**30
"""A window size larger than any request."""


class MaskRows(NamedTuple):
    """Per row of a batch, all [T] int64. The mask of row r is mask[offsets[r] : offsets[r] + num_keys[r]].

    The row attends to the keys [lengths[r] - window, prefix_lens[r]), and after them to the draft tokens whose bits are
    set in the ancestors of `nodes[r]`. Key prefix_lens[r] + j is draft token j, node tree_starts[r] + j of the forest.
    nodes[r] is -1 for a committed token.
    """

    offsets: Tensor
    num_keys: Tensor
    lengths: Tensor
    prefix_lens: Tensor
    nodes: Tensor
    tree_starts: Tensor


class TreeKernels(Protocol):
    """Small kernels over a forest. parents: [N], of each node in the forest, -1 at a root; depths: [N], from 1."""

    def paths(self, parents: Tensor, depths: Tensor, slots: Tensor, max_depth: int) -> Tensor:
        """slots: [N], of every node -> [N, max_depth]: the slots from the root to the node, then zeros."""
        ...

    def ancestors(self, parents: Tensor, depths: Tensor, tree_starts: Tensor, num_words: int, max_depth: int) -> Tensor:
        """tree_starts: [N], the first node of each node's tree -> [N, num_words] bits: bit j of a node is set where
        node tree_starts + j is an ancestor of it or itself."""
        ...

    def mask(self, rows: MaskRows, ancestors: Tensor, depths: Tensor, window: int, size: int) -> Tensor:
        """-> [size] bool, the rows' masks, concatenated."""
        ...


class TorchTrees(TreeKernels):
    """In torch, on any device: a few operations per level, without synchronisation."""

    def paths(self, parents: Tensor, depths: Tensor, slots: Tensor, max_depth: int) -> Tensor:
        # one column more: nodes whose path is complete write there
        paths = slots.new_zeros(len(parents), max_depth + 1)
        node = torch.arange(len(parents), device=parents.device)
        for level in range(max_depth):
            step = depths - 1 - level
            paths.scatter_(1, torch.where(step >= 0, step, max_depth)[:, None], slots[node][:, None])
            node = parents[node].clamp(min=0)
        return paths[:, :max_depth].contiguous()

    def ancestors(self, parents: Tensor, depths: Tensor, tree_starts: Tensor, num_words: int, max_depth: int) -> Tensor:
        bits = parents.new_zeros(len(parents), num_words)
        node = torch.arange(len(parents), device=parents.device)
        for level in range(max_depth):
            token = torch.where(level < depths, node - tree_starts, 0)[:, None]
            bit = (level < depths).to(torch.int64)[:, None] << token % WORD_BITS
            bits.scatter_(1, token // WORD_BITS, bits.gather(1, token // WORD_BITS) | bit)
            node = parents[node].clamp(min=0)
        return bits

    def mask(self, rows: MaskRows, ancestors: Tensor, depths: Tensor, window: int, size: int) -> Tensor:
        row = torch.repeat_interleave(rows.num_keys, output_size=size)
        key = torch.arange(size, device=row.device) - rows.offsets[row]
        lowest = rows.lengths[row] - window
        in_prefix = (key < rows.prefix_lens[row]) & (key >= lowest)
        node = rows.nodes[row]
        token = (key - rows.prefix_lens[row]).clamp_(0, WORD_BITS * ancestors.shape[1] - 1)
        bit = (ancestors[node.clamp(min=0), token // WORD_BITS] >> token % WORD_BITS) & 1
        key_node = (rows.tree_starts[row] + token).clamp_(max=len(depths) - 1)
        number = rows.prefix_lens[row] + depths[key_node] - 1  # along the path
        in_tree = (node >= 0) & (key >= rows.prefix_lens[row]) & (bit == 1) & (number >= lowest)
        return in_prefix | in_tree


class Forest:
    """The draft trees of a batch; nodes are numbered across trees."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.slots: list[int] = []
        """Of every node, where somebody asks for paths."""
        self.tree_starts: list[int] = []
        self.max_depth = 0

    def add(self, parents: Sequence[int], depths: Sequence[int], slots: Sequence[int] = ()) -> int:
        """Add a draft. Returns its first node's number."""
        first = len(self.parents)
        self.parents += [parent if parent < 0 else first + parent for parent in parents]
        self.depths += depths
        self.slots += slots
        self.tree_starts += [first] * len(parents)
        self.max_depth = max(self.max_depth, *depths)
        return first

    def paths(self, kernels: TreeKernels, device: torch.device) -> Tensor:
        """[N, max_depth]."""
        parents, depths, slots = to_device([self.parents, self.depths, self.slots], device)
        return kernels.paths(parents, depths, slots, self.max_depth)
