"""What `triton_paged` computes once per batch: tiles of rows, where their keys are, and the programs to launch.

A tile is a few consecutive rows of one request whose paths are prefixes of the last row's path, so that they read the
same keys. The keys of a path are numbered from 0 in path order. A program reads one split of a tile, the keys
[s * split_size, (s + 1) * split_size): splits follow from a key's own number, so the order of a row's sums never
depends on its batch, its span or its tile. The plan is made on the host and copied once; no attention is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api.attention import num_blocks_for, slots_of
from specserve.api.batch import copy_to_device
from specserve.api.drafts import depths_of, num_leading, parents_of
from specserve_cuda.attention.tree_masks import Forest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from specserve.api.batch import Batch, Span
    from specserve_cuda.attention.tree_masks import TreeKernels

WORKSPACE_BYTES = 64 * 2**20
"""Size of the partial results that are held at a time."""


class TileConfig(NamedTuple):
    """The tile sizes and launch options. `block_n` and `split_size` decide a row's bits; `rows` does not."""

    rows: int
    """Query rows of a tile."""
    block_m: int
    """Query rows times the query heads of a key head, padded to what a matrix instruction takes."""
    block_n: int
    """Keys of one step; divides `split_size`."""
    split_size: int
    num_warps: int
    num_stages: int


def tile_config_for(itemsize: int, group_size: int, rows: int | None = None) -> TileConfig:
    """`itemsize`: bytes of a number; `group_size`: query heads per key head; `rows`: by default as many as fit."""
    rows = rows or max(1, 16 // group_size)
    block_m = 16
    while block_m < rows * group_size:
        block_m *= 2
    if itemsize == 4:
        return TileConfig(rows, block_m, block_n=32, split_size=256, num_warps=8, num_stages=2)  # 4 warps would spill
    return TileConfig(rows, block_m, block_n=64, split_size=256, num_warps=4, num_stages=2)


class Tile(NamedTuple):
    """Rows [first_row, first_row + num_rows) of the batch; row i attends to the first `first_length + i` keys."""

    first_row: int
    num_rows: int
    first_length: int
    prefix_len: int
    """Keys before this one are found through the page table, those from it on along the path of `node`."""
    first_block: int
    """Where the request's blocks begin among those of all requests."""
    node: int = 0
    """The tile's last row in the forest."""
    ahead: int = 0
    """Keys behind the row's own that it sees, in a tile of one row."""

    @property
    def num_keys(self) -> int:
        return self.first_length + self.num_rows - 1


class TileRow(NamedTuple):
    """A tile as the kernels read it. An even number of fields keeps slices of tiles aligned to 16 bytes."""

    first_row: int
    num_rows: int
    first_length: int
    prefix_len: int
    first_block: int
    """Where the request's blocks begin: on the host among those of all requests, packed in `PagedPlan.block_ids`."""
    path_offset: int
    """Where the path of its node begins in `PagedPlan.paths`."""
    first_item: int
    """Of its work items, counted from the launch's first."""
    ahead: int = 0


TILE_FIELDS = len(TileRow._fields)
FIRST_BLOCK = TileRow._fields.index("first_block")


class HostLaunch(NamedTuple):
    """Tiles and work items whose partial results are in the workspace together."""

    tiles: slice
    items: slice

    @property
    def num_items(self) -> int:
        count: int = self.items.stop - self.items.start
        return count


class Launch(NamedTuple):
    """The same on the device, all int64. tiles: [tiles, fields of TileRow]. counts: [2], the number of work items and
    one unused. items: [items, 2], the tile in the launch and the split. `programs` share the items."""

    programs: int
    tiles: Tensor
    counts: Tensor
    items: Tensor


class PagedPlan(NamedTuple):
    """slots: [T]. block_ids: the memory of all launches, in which the blocks of all requests come last. paths: [nodes,
    max_depth], the slots of a draft token's path after the committed tokens. All int64. `max_items`: work items of the
    largest launch."""

    slots: Tensor
    block_ids: Tensor
    paths: Tensor
    launches: list[Launch]
    max_items: int


class HostPlan(NamedTuple):
    """A plan before it is on the device; `rows` become its tiles."""

    rows: list[TileRow]
    items: Tensor
    block_ids: list[int]
    forest: Forest
    launches: list[HostLaunch]


def make_plan(
    batch: Batch, config: TileConfig, bytes_per_item: int, trees: TreeKernels, device: torch.device
) -> PagedPlan:
    """`bytes_per_item`: of a work item's partial results, over all key heads."""
    plan = lay_out(batch, config, bytes_per_item)
    memory = copy_to_device(packed(plan, len(plan.rows)), device)
    counts, tiles, items = parts_of(memory, len(plan.launches), len(plan.rows), len(plan.items))
    launches = [
        Launch(launch.num_items, tiles[launch.tiles], counts[i], items[launch.items])
        for i, launch in enumerate(plan.launches)
    ]
    most = max(launch.num_items for launch in plan.launches)
    # where there is no tree, no path is read
    paths = plan.forest.paths(trees, device) if plan.forest.parents else memory[:1]
    return PagedPlan(batch.slots, memory, paths, launches, most)


def packed(plan: HostPlan, num_tiles: int) -> Tensor:
    """All numbers of a plan, for one copy to the device, with tiles of no rows added up to `num_tiles`."""
    counts = torch.tensor([(launch.num_items, 0) for launch in plan.launches])
    tiles = torch.zeros((num_tiles, TILE_FIELDS), dtype=torch.int64)
    tiles[: len(plan.rows)] = torch.tensor(plan.rows)
    tiles[:, FIRST_BLOCK] += counts.numel() + tiles.numel() + plan.items.numel()
    return torch.cat((counts.flatten(), tiles.flatten(), plan.items.flatten(), torch.tensor(plan.block_ids)))


def parts_of(memory: Tensor, launches: int, tiles: int, items: int) -> tuple[Tensor, Tensor, Tensor]:
    """The counts, tiles and work items in the memory of a packed plan."""
    sizes = 2 * launches, TILE_FIELDS * tiles, 2 * items
    counts, rows, pairs = memory[: sum(sizes)].split_with_sizes(sizes)
    return counts.view(-1, 2), rows.view(-1, TILE_FIELDS), pairs.view(-1, 2)


def lay_out(batch: Batch, config: TileConfig, bytes_per_item: int, path_stride: int | None = None) -> HostPlan:
    """`path_stride`: numbers per node in `PagedPlan.paths`; by default as many as the deepest tree has levels."""
    block_ids: list[int] = []
    forest = Forest()
    tiles: list[Tile] = []
    for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
        first_block, blocks = len(block_ids), span.blocks
        block_ids += blocks[: num_blocks_for(span.start + span.first_node + span.length, batch.block_size)]
        tiles += chain_tiles(span, offset, first_block, config.rows)
        if num_leading(span.draft) < span.first_node + span.drafted:
            tree = range(span.start + span.known, span.start + span.first_node + span.length)
            slots = slots_of(blocks, tree, batch.block_size)
            tiles += tree_tiles(span, offset, first_block, config.rows, forest, slots)
    max_items = max(1, WORKSPACE_BYTES // bytes_per_item)
    stride = forest.max_depth if path_stride is None else path_stride
    rows, items, launches = plan_launches(tiles, config.split_size, max_items, stride)
    return HostPlan(rows, items, block_ids, forest, launches)


def chain_tiles(span: Span, offset: int, first_block: int, max_rows: int) -> Iterator[Tile]:
    """The span's committed tokens and the leading chain of its draft, whose slots are consecutive."""
    if span.sees_ahead:
        end = span.start + span.length
        for row in range(span.length):
            yield Tile(offset + row, 1, end, end, first_block, ahead=span.length - 1 - row)
        return
    count = span.known + max(num_leading(span.draft) - span.first_node, 0)
    for begin in range(0, count, max_rows):
        rows = min(max_rows, count - begin)
        length = span.start + span.first_node + begin + 1
        yield Tile(offset + begin, rows, length, length + rows - 1, first_block)


def tree_tiles(
    span: Span, offset: int, first_block: int, max_rows: int, forest: Forest, slots: Sequence[int]
) -> Iterator[Tile]:
    """The draft tokens after the leading chain; consecutive nodes share a tile where each is the parent of the next.
    `slots`: of all nodes."""
    assert span.draft is not None
    parents, depths = parents_of(span.draft), depths_of(span.draft)
    known, row = span.start + span.known, offset + span.known - span.first_node
    first_node = forest.add(parents, depths, slots)
    begin = max(num_leading(span.draft), span.first_node)
    while begin < len(parents):
        limit = min(len(parents), begin + max_rows)
        end = next((node for node in range(begin + 1, limit) if parents[node] != node - 1), limit)
        yield Tile(row + begin, end - begin, known + depths[begin], known, first_block, first_node + end - 1)
        begin = end


def plan_launches(
    tiles: Sequence[Tile], split_size: int, max_items: int, max_depth: int
) -> tuple[list[TileRow], Tensor, list[HostLaunch]]:
    """The tiles and their work items [items, 2], in launches of at most `max_items`, or of one tile that has more.

    A long prompt has tens of thousands of items, so that they are no Python objects.
    """
    rows: list[TileRow] = []
    launches: list[HostLaunch] = []
    counts, first_items, in_launch = [], [], []
    first_tile = first_item = num_items = 0
    for index, tile in enumerate(tiles):
        num_splits = -(-tile.num_keys // split_size)
        if index > first_tile and num_items + num_splits - first_item > max_items:
            launches.append(HostLaunch(slice(first_tile, index), slice(first_item, num_items)))
            first_tile, first_item = index, num_items
        rows.append(TileRow(*tile[:5], tile.node * max_depth, num_items - first_item, tile.ahead))
        counts.append(num_splits)
        first_items.append(num_items)
        in_launch.append(index - first_tile)
        num_items += num_splits
    launches.append(HostLaunch(slice(first_tile, len(tiles)), slice(first_item, num_items)))
    by_item = torch.tensor([in_launch, first_items]).repeat_interleave(torch.tensor(counts), 1)
    by_item[1] = torch.arange(num_items) - by_item[1]
    return rows, by_item.T.contiguous(), launches
