"""Memory for the plans of `triton_paged`, at addresses that stay: what a captured graph reads.

A plan is padded with tiles of no rows and with work items of such a tile: they read no key and store no row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.builder import copy_to_device
from specserve_hybrid_attn.cuda.paged_plan import Launch, PagedPlan, TileRow

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve_hybrid_attn.cuda.paged_plan import HostPlan
    from specserve_hybrid_attn.cuda.tree_masks import TreeKernels

EMPTY_TILE = TileRow(0, 0, 0, 0, 0, 0, 0)


class PlanSizes(NamedTuple):
    """The most of everything that a plan may have. `tiles`: one more than there are real ones, for the padding."""

    tiles: int
    items: int
    block_ids: int
    nodes: int
    depth: int
    """Of the deepest draft tree."""

    def holds(self, plan: HostPlan) -> bool:
        forest = plan.forest
        return (
            len(plan.rows) < self.tiles
            and len(plan.items) <= self.items
            and len(plan.block_ids) <= self.block_ids
            and len(forest.parents) <= self.nodes
            and forest.max_depth <= self.depth
            and len(plan.launches) == 1
        )


class PlanBuffers:
    """Plans of one size. `sizes.depth` is the stride of paths, for which plans must have been laid out."""

    def __init__(self, sizes: PlanSizes, device: torch.device) -> None:
        self.sizes, self.device = sizes, device
        fields = len(TileRow._fields)
        parts = sizes.tiles * fields, sizes.items * 2, sizes.block_ids
        self.memory = torch.zeros(sum(parts), dtype=torch.int64, device=device)
        tiles, items, self.block_ids = self.memory.split_with_sizes(parts)
        self.tiles, self.items = tiles.view(-1, fields), items.view(-1, 2)
        self.paths = torch.zeros((max(1, sizes.nodes), max(1, sizes.depth)), dtype=torch.int64, device=device)
        self.launches = [Launch(slice(0, sizes.tiles), slice(0, sizes.items))]

    def load(self, plan: HostPlan, batch: Batch, trees: TreeKernels) -> PagedPlan:
        """The plan in this memory, in one copy; the paths of trees are computed there."""
        assert self.sizes.holds(plan), "the bucket holds the plan"
        self.memory.copy_(copy_to_device(self.padded(plan), self.device))
        if plan.forest.parents:
            found = plan.forest.paths(batch.slots, trees)
            self.paths[: found.shape[0], : found.shape[1]] = found
        return PagedPlan(
            batch.slots, self.tiles, self.items, self.block_ids, self.paths, self.launches, self.sizes.items
        )

    def padded(self, plan: HostPlan) -> Tensor:
        sizes = self.sizes
        tiles = [*plan.rows, *[EMPTY_TILE] * (sizes.tiles - len(plan.rows))]
        no_items = torch.tensor([[len(plan.rows), 0]]).expand(sizes.items - len(plan.items), 2)
        no_blocks = [0] * (sizes.block_ids - len(plan.block_ids))
        parts = torch.tensor(tiles), plan.items, no_items, torch.tensor([*plan.block_ids, *no_blocks])
        return torch.cat([part.flatten() for part in parts])
