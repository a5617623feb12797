"""Query tiles: which rows of a batch are attended together, and over which keys.

A tile is a few consecutive rows of one request whose padded numbers of keys agree. Every tile of a model is
computed in one shape, short ones padded, so a row's bits depend neither on how many rows its tile holds nor
on its place in it. Pure numbers: no tensors here.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from specserve.batch.drafts import num_leading, parents_of, paths_of
from specserve.kv.slots import slots_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.batch.batch import Batch
    from specserve.batch.span import Span

MIN_GRID_STEP = 64
"""Every block size divides it."""
TILE_QUERIES = 16
"""Query rows of a tile, over all heads that share a key head: what one matrix instruction takes anyway."""
MAX_NARROW_TILES = 2
"""A span of more tiles reads its keys once for all of them; tiles of narrower spans share calls with other spans."""


def key_grid(length: int) -> int:
    """The padded number of keys of a row that sees `length` keys: at most a quarter more, beyond 256."""
    step = max(MIN_GRID_STEP, 1 << (length - 1).bit_length() >> 3)
    return -(-length // step) * step


def tile_rows(group_size: int) -> int:
    """Rows of a tile where `group_size` query heads share a key head."""
    return max(1, TILE_QUERIES // group_size)


class Tile(NamedTuple):
    """Row `rows[i]` of the batch sees `lengths[i]` keys; all are padded to the same number."""

    rows: range
    lengths: range
    span: Span
    slots: list[int] | None = None
    """Slots of the last row's keys, in path order, for rows of a tree; None: the request's blocks in order."""
    ahead: int = 0
    """How many of the keys that a row sees are behind its own."""

    @property
    def padded(self) -> int:
        return key_grid(self.lengths[0])


class TileGroup(NamedTuple):
    """Tiles that read keys together: one key sequence for all (`shared`), or one each, all of one length."""

    tiles: Sequence[Tile]
    shared: bool


def plan_tiles(batch: Batch, rows_per_tile: int) -> list[TileGroup]:
    """Every row of the batch in exactly one tile."""
    groups: list[TileGroup] = []
    narrow: dict[int, list[Tile]] = defaultdict(list)
    branches: dict[int, list[Tile]] = defaultdict(list)
    for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
        if span.sees_ahead:
            end = span.start + span.length
            for i in range(span.length):
                row, ahead = offset + i, span.length - 1 - i
                narrow[key_grid(end)].append(Tile(range(row, row + 1), range(end, end + 1), span, ahead=ahead))
            continue
        linear = span.known + max(0, num_leading(span.draft) - span.first_node)
        tiles = cut_tiles(span, offset, linear, rows_per_tile)
        if len(tiles) > MAX_NARROW_TILES:
            groups.append(TileGroup(tiles, shared=True))
        else:
            for tile in tiles:
                narrow[tile.padded].append(tile)
        if linear < span.length:
            for tile in tree_tiles(span, offset, linear, batch.block_size, rows_per_tile):
                branches[tile.padded].append(tile)
    return groups + [TileGroup(tiles, shared=False) for tiles in [*narrow.values(), *branches.values()]]


def cut_tiles(span: Span, offset: int, count: int, rows_per_tile: int) -> list[Tile]:
    """The span's first `count` rows, which are consecutive in the request."""
    tiles, begin = [], 0
    while begin < count:
        start = span.start + span.first_node
        padded = key_grid(start + begin + 1)
        end = min(begin + rows_per_tile, count, padded - start)
        first = start + 1
        tiles.append(Tile(range(offset + begin, offset + end), range(first + begin, first + end), span))
        begin = end
    return tiles


def tree_tiles(span: Span, offset: int, begin: int, block_size: int, rows_per_tile: int) -> list[Tile]:
    """The draft tokens from row `begin` of the span on. Consecutive ones that are parent and child form a branch and
    share tiles: the keys of its last row, in path order, begin with the keys of each row before it."""
    assert span.draft is not None
    blocks, known = span.blocks, span.start + span.known
    num_nodes, shift = len(span.draft.tokens), offset + span.known - span.first_node
    slots = slots_of(blocks, range(known + num_nodes), block_size)
    paths, parents = paths_of(span.draft), parents_of(span.draft)
    tiles, first = [], begin - span.known + span.first_node
    while first < num_nodes:
        length = known + len(paths[first])
        most = min(num_nodes, first + min(rows_per_tile, key_grid(length) - length + 1))
        end = next((node for node in range(first + 1, most) if parents[node] != node - 1), most)
        keys = slots[:known] + [slots[known + ancestor] for ancestor in paths[end - 1]]
        rows = range(shift + first, shift + end)
        tiles.append(Tile(rows, range(length, length + end - first), span, keys))
        first = end
    return tiles
