"""The portable attention backend: torch's scaled_dot_product_attention over the paged KV cache.

It keeps the bit rule by shape. Rows go in query tiles of one fixed shape (see `tiles`), the tiles of a call
are its *batch* dimension, and neither a row's place in its tile nor the other tiles change its bits. A row's
keys come in path order and are padded to a grid of the row's own length, so span width and chunk cuts cannot
reach its bits either. Tiles whose lengths fall on the same grid point share a call.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from specserve.attention.products import product_of
from specserve.attention.tiles import Tile, TileGroup, plan_tiles, tile_rows
from specserve.batch.row_tensors import to_device
from specserve.config import BLOCK_SIZES
from specserve.kernels.torch_kernels import CACHE_LINE, HALF_DEPTH
from specserve.kv.cache import finite
from specserve.protocols import AttentionBackend, AttentionCapabilities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.kv.cache import KeysValues, KVCache
    from specserve.protocols import AttentionSpec


QUERY_LIMIT = 2.0**60
"""No score of such a query and a key of the cache overflows. A hidden key's score must not: inf - inf is NaN, and what
the row does not see would reach it."""
ALIGNED_HEAD = 4
"""A head size that is a multiple of this needs no padding on CPU."""
HEAD_BYTES = 16
"""What the memory-efficient kernel loads of a head at a time."""


MASK_BYTES = 64 * 2**20
"""Of the masks of one call, and of those that a plan keeps for all layers; others are made anew in each layer."""


class Call(NamedTuple):
    """One SDPA call: its tiles, the padded number of keys, and how many keys each of its rows sees up to which one."""

    tiles: slice
    length: int
    seen: Tensor
    """[tiles, rows per tile, 1] int64."""
    own: Tensor
    """The same without the keys behind the row's own, which is the last one in its window."""
    masks: dict[int | None, Tensor]
    """By sliding window, where the plan keeps them."""


class Gather(NamedTuple):
    """Keys and values gathered at once, as `copies` sequences, and the calls over them. `read(layer)` gathers them."""

    read: Callable[[int], KeysValues]
    copies: int
    calls: list[Call]


class Plan(NamedTuple):
    """`rows` [tiles * rows per tile] gathers queries into tiles, `output_rows` [T] is the inverse; both None when every
    row is a tile of its own, in order."""

    slots: Tensor
    rows: Tensor | None
    output_rows: Tensor | None
    gathers: list[Gather]


class SdpaAttention(AttentionBackend):
    name = "sdpa"

    def __init__(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> None:
        self.spec, self.cache, self.device, self.dtype = spec, cache, device, dtype
        self.group_size = spec.num_heads // spec.num_kv_heads
        self.rows_per_tile = tile_rows(self.group_size)
        self.windows = sorted(set(spec.sliding_windows), key=lambda w: w or 0)
        self.products = [
            product_of(spec, layer, self.rows_per_tile, device) for layer in range(len(spec.sliding_windows))
        ]
        self.query_limit = min(QUERY_LIMIT, torch.finfo(dtype).max)
        self.reads_next_row = device.type == "cpu" and dtype != torch.float32 and spec.head_dim % HALF_DEPTH != 0
        """May a product read into the next row (see `HALF_DEPTH`)? The cache is finite, queries need not be."""

        self.head_padding = -spec.head_dim % CACHE_LINE if device.type == "cpu" and spec.head_dim % ALIGNED_HEAD else 0
        """Zeros behind every head, so that all rows begin at equal offsets in a cache line: see `CACHE_LINE`."""

    # --- once per batch -----------------------------------------------------------------------------

    def plan(self, batch: Batch) -> Plan:
        rows: list[int] = []
        output_rows = [0] * batch.num_rows
        gathers = []
        for group in self.bounded(plan_tiles(batch, self.rows_per_tile)):
            gathers.append(self.gather(group, len(rows) // self.rows_per_tile))
            for tile in group.tiles:
                for row in tile.rows:
                    output_rows[row] = len(rows) + row - tile.rows.start
                rows += tile.rows
                rows += [tile.rows.start] * (self.rows_per_tile - len(tile.rows))
        self.keep_masks(gathers)
        if rows[:: self.rows_per_tile] == list(range(batch.num_rows)):
            return Plan(batch.slots, None, None, gathers)
        return Plan(batch.slots, to_device(rows, self.device), to_device(output_rows, self.device), gathers)

    def gather(self, group: TileGroup, first: int) -> Gather:
        """`first`: how many tiles come before this group's."""
        tiles = group.tiles
        if not group.shared:
            call = self.call(slice(first, first + len(tiles)), tiles)
            if tiles[0].slots is None:
                return Gather(self.reader(tiles, call.length), len(tiles), [call])
            slots = [tile.slots + [0] * (call.length - len(tile.slots)) for tile in tiles if tile.slots is not None]
            source = to_device(slots, self.device).flatten()
            return Gather(partial(self.cache.read_slots, index=source), len(tiles), [call])
        calls, begin = [], 0
        for i in range(1, len(tiles) + 1):
            most = self.max_tiles(tiles[begin].padded)
            if i == len(tiles) or tiles[i].padded != tiles[begin].padded or i - begin == most:
                calls.append(self.call(slice(first + begin, first + i), tiles[begin:i]))
                begin = i
        return Gather(self.reader(tiles[:1], calls[-1].length), 1, calls)

    def reader(self, tiles: Sequence[Tile], length: int) -> Callable[[int], KeysValues]:
        """Reads `length` keys for each tile. Block 0 stands in where a request has no more blocks; a single request
        whose blocks are contiguous is read in place; the slots behind them are masked."""
        size, count = self.cache.block_size, length // self.cache.block_size
        table: list[int] = []
        for tile in tiles:
            blocks = tile.span.blocks[:count]
            table += blocks
            table += [0] * (count - len(blocks))
        first, held = table[0], tiles[0].span.blocks[:count]
        if len(tiles) == 1 and held == list(range(first, first + len(held))) and first + count <= self.cache.num_blocks:
            return partial(self.cache.read_run, run=slice(first * size, first * size + length))
        return partial(self.cache.read_blocks, index=to_device(table, self.device))

    def call(self, tiles: slice, members: Sequence[Tile]) -> Call:
        seen = to_device(
            [[*tile.lengths, *[tile.lengths.start] * (self.rows_per_tile - len(tile.rows))] for tile in members],
            self.device,
        )[:, :, None]
        own = seen
        if any(tile.ahead for tile in members):
            own = seen - to_device([tile.ahead for tile in members], self.device)[:, None, None]
        return Call(tiles, members[0].padded, seen, own, {})

    # --- masks --------------------------------------------------------------------------------------

    def mask_bytes(self, padded: int) -> int:
        """The mask of one tile."""
        return self.rows_per_tile * self.group_size * padded * self.dtype.itemsize

    def max_tiles(self, padded: int) -> int:
        """The masks of one call."""
        return max(1, MASK_BYTES // self.mask_bytes(padded))

    def bounded(self, groups: Sequence[TileGroup]) -> Iterator[TileGroup]:
        """Groups that do not share keys, in parts whose masks are not too large; the others are cut by call."""
        for group in groups:
            most = len(group.tiles) if group.shared else self.max_tiles(group.tiles[0].padded)
            for begin in range(0, len(group.tiles), most):
                yield group._replace(tiles=group.tiles[begin : begin + most])

    def keep_masks(self, gathers: Sequence[Gather]) -> None:
        """As many as fit: layers of equal windows share them."""
        left = MASK_BYTES
        for call in (call for gather in gathers for call in gather.calls):
            for window in self.windows:
                size = len(call.seen) * self.mask_bytes(call.length)
                if size <= left:
                    left -= size
                    call.masks[window] = self.mask(call, window)

    def mask(self, call: Call, window: int | None) -> Tensor:
        """[tiles, 1, query rows, padded length]: 0 where a row sees a key, -inf elsewhere."""
        if window in call.masks:
            return call.masks[window]
        keys = torch.arange(call.length, device=self.device)
        hidden = (keys >= call.seen) | (keys < self.spec.first_key)
        if window is not None:
            hidden |= keys < call.own - window
        mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))
        return mask.repeat_interleave(self.group_size, dim=1)[:, None]

    # --- once per layer -----------------------------------------------------------------------------

    @property
    def writable_cache(self) -> KVCache:
        return self.cache

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Plan) -> Tensor:
        self.cache.write(layer, plan.slots, k, v)
        return self.attend(layer, q, plan)

    def attend(self, layer: int, q: Tensor, plan: Plan) -> Tensor:
        spec = self.spec
        bounded = (finite(q) if self.reads_next_row else q).clamp(-self.query_limit, self.query_limit)
        queries = self.pad_heads(self.tiled(bounded, plan.rows))
        parts = []
        for gather in plan.gathers:
            keys, values = (
                self.pad_heads(t.view(gather.copies, -1, spec.num_kv_heads, spec.head_dim)).transpose(1, 2)
                for t in gather.read(layer)
            )
            parts += [self.attend_call(layer, call, queries, keys, values) for call in gather.calls]
        out = parts[0] if len(parts) == 1 else torch.cat(parts)
        rows = self.untiled(out[..., : spec.head_dim], plan.output_rows)
        if self.reads_next_row:
            rows.add_(q.mul(0).sum(-1, keepdim=True))  # NaN where a query is not finite
        return rows

    def tiled(self, q: Tensor, rows: Tensor | None) -> Tensor:
        """q: [T, heads, head_dim] -> [tiles, kv_heads, query rows, head_dim]; short tiles repeat their first row.

        Always contiguous: a row repeated as a view has stride 0, which BLAS does not take, and torch then sums in
        another order than for the tiles that are copies.
        """
        spec, height = self.spec, self.rows_per_tile
        if rows is None:
            by_group = q.reshape(-1, spec.num_kv_heads, 1, self.group_size, spec.head_dim)
            return by_group.expand(-1, -1, height, -1, -1).flatten(2, 3).contiguous()
        by_row = q.index_select(0, rows).view(-1, height, spec.num_kv_heads, self.group_size, spec.head_dim)
        return by_row.transpose(1, 2).flatten(2, 3).contiguous()

    def pad_heads(self, heads: Tensor) -> Tensor:
        """heads: [..., head_dim]."""
        return F.pad(heads, (0, self.head_padding)) if self.head_padding else heads

    def untiled(self, out: Tensor, output_rows: Tensor | None) -> Tensor:
        """[tiles, kv_heads, query rows, head_dim] -> [T, heads, head_dim], a fresh tensor."""
        spec = self.spec
        by_row = out.reshape(-1, spec.num_kv_heads, self.rows_per_tile, self.group_size, spec.head_dim)
        if output_rows is None:
            return by_row[:, :, 0].reshape(-1, spec.num_heads, spec.head_dim)
        return by_row.transpose(1, 2).reshape(-1, spec.num_heads, spec.head_dim).index_select(0, output_rows)

    def attend_call(self, layer: int, call: Call, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries = queries[call.tiles]
        tiles = len(queries)
        copies = 2 if tiles == 1 and self.splits_lone_tile() else tiles
        return self.products[layer](
            queries.expand(copies, -1, -1, -1),
            keys[:, :, : call.length].expand(copies, -1, -1, -1),
            values[:, :, : call.length].expand(copies, -1, -1, -1),
            self.mask(call, self.spec.sliding_windows[layer]),
            self.spec.scale,
        )[:tiles]

    def splits_lone_tile(self) -> bool:
        """Whether BLAS would split the product of a single tile among threads, and so sum in another order. It does so
        for one tile with one key head; products of several tiles or key heads are not split."""
        return self.spec.num_kv_heads == 1 and self.device.type == "cpu" and torch.get_num_threads() > 1


class SdpaFactory:
    """What the built-in plugin offers as an attention backend."""

    name = SdpaAttention.name
    capabilities = AttentionCapabilities(
        paged=False,
        tree_mask=True,
        ragged=True,
        row_invariant=True,
        block_sizes=BLOCK_SIZES,
        devices=("cpu", "cuda"),
        dtypes=("float32", "bfloat16", "float16"),
        head_bytes={"cuda": HEAD_BYTES},
        soft_caps=True,
        sinks=True,
        draft_layers=True,
        attend_only=True,
    )

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> SdpaAttention:
        return SdpaAttention(spec, cache, device, dtype)
