"""What `triton_paged` works out once per batch: tiles of rows, where their keys lie, and the programs to launch.

A tile is a few consecutive rows of one request whose paths are prefixes of the last one's path; they read the same
keys. The keys of a path are numbered from 0 in path order. A program owns the keys [s * split, (s + 1) * split) of a
tile: the cuts follow from a key's own number, so the reduction of a row never depends on its batch, its span or its
tile. Everything here is numbers on the host, uploaded once; no attention is computed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.builder import to_device
from specserve.batch.drafts import depths_of, num_leading, parents_of
from specserve_hybrid_attn.cuda.tree_masks import Forest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.batch.span import Span
    from specserve_hybrid_attn.cuda.tree_masks import TreeKernels

TILE_FIELDS = 8
"""Numbers of a tile on the device; even, so that a slice of tiles stays aligned to 16 bytes."""
WORKSPACE = 64 * 2**20
"""Bytes of partial results that are held at a time."""


class Cut(NamedTuple):
    """How attention is cut up. A change of `keys` or `split` is another arithmetic; `rows` is not."""

    rows: int
    """Query rows of a tile."""
    queries: int
    """Query rows times the heads of a group, as many as a matrix instruction takes at least."""
    keys: int
    """Keys taken at a time; divides `split`."""
    split: int
    num_warps: int
    num_stages: int


def cut_for(itemsize: int, group_size: int, rows: int | None = None) -> Cut:
    """`itemsize`: bytes of a number; `group_size`: query heads per key head; `rows`: per tile, where not what fits."""
    rows = rows or max(1, 16 // group_size)
    queries = 16
    while queries < rows * group_size:
        queries *= 2
    if itemsize == 4:
        return Cut(rows, queries, keys=32, split=256, num_warps=8, num_stages=2)  # with 4 warps registers spill
    return Cut(rows, queries, keys=64, split=256, num_warps=4, num_stages=2)


class Tile(NamedTuple):
    """Rows [first_row, first_row + num_rows) of the batch; row i of them sees the first `first_length + i` keys."""

    first_row: int
    num_rows: int
    first_length: int
    linear: int
    """Keys below this number lie where the request's blocks say, those from it on where the path of `node` says."""
    first_block: int
    node: int = 0
    """The tile's last row in the forest."""

    @property
    def longest(self) -> int:
        return self.first_length + self.num_rows - 1


class Wave(NamedTuple):
    """Tiles and programs that are launched together, and whose partial results are held together."""

    tiles: slice
    items: slice


class PagedPlan(NamedTuple):
    """slots: [T]. tiles: [tiles, TILE_FIELDS]. items: [programs, 2]: tile of its wave, split. blocks: [n], those of all
    requests one after the other. paths: [nodes, deepest], the slots of a guess's path after the committed tokens. All
    int64. `most_items`: programs of the largest wave."""

    slots: Tensor
    tiles: Tensor
    items: Tensor
    blocks: Tensor
    paths: Tensor
    waves: list[Wave]
    most_items: int


def make_plan(batch: Batch, cut: Cut, bytes_per_item: int, trees: TreeKernels, device: torch.device) -> PagedPlan:
    """`bytes_per_item`: of partial results, over all key heads."""
    blocks: list[int] = []
    forest = Forest()
    tiles: list[Tile] = []
    for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
        first_block = len(blocks)
        blocks += span.request.blocks[: -(-(span.start + span.length) // batch.block_size)]
        tiles += linear_tiles(span, offset, first_block, cut.rows)
        if num_leading(span.draft) < span.drafted:
            tiles += tree_tiles(span, offset, first_block, cut.rows, forest)
    rows, items, waves = cut_waves(tiles, cut.split, max(1, WORKSPACE // bytes_per_item), forest.deepest)
    return PagedPlan(
        batch.slots,
        to_device(rows, device),
        to_device(items, device),
        to_device(blocks, device),
        forest.paths(batch.slots, trees),
        waves,
        max(wave.items.stop - wave.items.start for wave in waves),
    )


def linear_tiles(span: Span, offset: int, first_block: int, most: int) -> Iterator[Tile]:
    """The span's leading rows, which follow each other in the request: committed tokens and a leading chain."""
    count = span.known + num_leading(span.draft)
    for begin in range(0, count, most):
        rows = min(most, count - begin)
        length = span.start + begin + 1
        yield Tile(offset + begin, rows, length, length + rows - 1, first_block)


def tree_tiles(span: Span, offset: int, first_block: int, most: int, forest: Forest) -> Iterator[Tile]:
    """The guesses after the leading chain; those that follow each other as parent and child share tiles."""
    assert span.draft is not None
    parents, depths = parents_of(span.draft), depths_of(span.draft)
    known, row = span.start + span.known, offset + span.known
    first_node = forest.plant(parents, depths, row)
    begin = num_leading(span.draft)
    while begin < span.drafted:
        last = min(span.drafted, begin + most)
        end = next((node for node in range(begin + 1, last) if parents[node] != node - 1), last)
        yield Tile(row + begin, end - begin, known + depths[begin], known, first_block, first_node + end - 1)
        begin = end


def cut_waves(
    tiles: Sequence[Tile], split: int, most_items: int, deepest: int
) -> tuple[list[list[int]], list[tuple[int, int]], list[Wave]]:
    """The tiles as the device reads them, their programs, and both cut so that a wave has `most_items` programs, or
    one tile where that alone has more."""
    rows: list[list[int]] = []
    items: list[tuple[int, int]] = []
    waves: list[Wave] = []
    first_tile = first_item = 0
    for index, tile in enumerate(tiles):
        splits = -(-tile.longest // split)
        if index > first_tile and len(items) + splits - first_item > most_items:
            waves.append(Wave(slice(first_tile, index), slice(first_item, len(items))))
            first_tile, first_item = index, len(items)
        path = tile.node * deepest
        rows.append([*tile[:5], path, len(items) - first_item, 0])
        items += [(index - first_tile, s) for s in range(splits)]
    waves.append(Wave(slice(first_tile, len(tiles)), slice(first_item, len(items))))
    return rows, items, waves
