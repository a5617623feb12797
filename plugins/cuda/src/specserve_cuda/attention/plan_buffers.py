"""Memory for the plans of `triton_paged`, at addresses that stay: what a captured graph reads.

A plan is padded with tiles of no rows, which store nothing. The number of work items is data: a fixed number of
programs shares them, however many there are. Block ids come last, so that one copy moves what a step has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.api.batch import copy_into
from specserve_cuda.attention.paged_plan import Launch, PagedPlan, packed, parts_of

if TYPE_CHECKING:
    from specserve.api.batch import Batch
    from specserve_cuda.attention.paged_plan import HostPlan
    from specserve_cuda.attention.tree_masks import TreeKernels


MAX_DEPTH = 64
"""Of draft trees in padded plans: the stride of paths, for which such plans are laid out."""
MAX_NODES = 2048
"""Draft tokens of trees in a padded plan."""
MEMORY = 2**19
"""Numbers of a padded plan, most of them for block ids."""
PROGRAMS = 1024
"""Of a launch of a padded plan, over all key heads: several for each multiprocessor of a large device."""


class PlanMemory:
    """Where padded plans of all sizes lie, one at a time. `items`: what the workspace holds."""

    def __init__(self, items: int, num_kv_heads: int, device: torch.device) -> None:
        self.items, self.num_kv_heads, self.device = items, num_kv_heads, device
        self.numbers = torch.zeros(MEMORY, dtype=torch.int64, device=device)
        self.paths = torch.zeros((MAX_NODES, MAX_DEPTH), dtype=torch.int64, device=device)


class PaddedPlan:
    """Plans with as many tiles as `padded` has rows."""

    def __init__(self, memory: PlanMemory, padded: Batch) -> None:
        self.memory, self.num_tiles = memory, padded.num_rows
        (counts,), tiles, items = parts_of(memory.numbers, 1, self.num_tiles, memory.items)
        self.num_cleared = counts.numel() + tiles.numel()
        programs = max(self.num_tiles, PROGRAMS // memory.num_kv_heads)
        launches = [Launch(programs, tiles, counts, items)]
        self.plan = PagedPlan(padded.slots, memory.numbers, memory.paths, launches, memory.items)

    def clear(self) -> None:
        """No work item, and tiles of no rows."""
        self.memory.numbers[: self.num_cleared].zero_()

    def load(self, plan: HostPlan, trees: TreeKernels) -> str:
        """One copy; the paths of trees are computed on the device. Empty, or why the plan does not fit."""
        numbers = packed(plan, self.num_tiles)
        if reason := self.misfit(plan, len(numbers)):
            return reason
        copy_into(self.memory.numbers[: len(numbers)], numbers, self.memory.device)
        if plan.forest.parents:
            found = plan.forest.paths(trees, self.memory.device)
            self.memory.paths[: found.shape[0], : found.shape[1]] = found
        return ""

    def misfit(self, plan: HostPlan, count: int) -> str:
        forest = plan.forest
        if len(plan.launches) > 1 or len(plan.items) > self.memory.items:
            return "its keys are more than the workspace of attention triton_paged takes at a time"
        if count > MEMORY:
            return "its block ids are more than the memory of recorded plans of attention triton_paged"
        if forest.max_depth > MAX_DEPTH or len(forest.parents) > MAX_NODES:
            return f"its draft trees have more than {MAX_DEPTH} levels or {MAX_NODES} tokens"
        return ""
