"""The portable attention backend: torch's scaled_dot_product_attention over the paged KV cache.

It keeps the bit rule by shape. Each row is its own query: the rows of a call are its *batch* dimension,
which never changes a row, and the heads that share a key head are its query dimension, a constant of the
model. A row's keys come in path order and are padded to a grid of the row's own length, so neither
neighbours nor span width nor chunk cuts can reach its bits. Rows whose lengths fall on the same grid point
share a call.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from specserve.batch import to_device
from specserve.errors import ConfigError
from specserve.protocols import AttentionCapabilities
from specserve.trees import num_leading, paths_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

    from specserve.batch import Batch
    from specserve.kv.cache import KeysValues, KVCache
    from specserve.protocols import AttentionSpec
    from specserve.types import Span

FINEST = 64
"""The smallest grid step; every block size divides it."""
WIDE = 6
"""A span of this many rows reads its keys once; narrower spans read per row and share calls with others."""


def key_grid(length: int) -> int:
    """The padded number of keys of a row that sees `length` keys: at most a quarter more, beyond 256."""
    step = max(FINEST, 1 << (length - 1).bit_length() >> 3)
    return -(-length // step) * step


class Bucket(NamedTuple):
    """Rows of a group that share a padded length, and what they may not see, by sliding window."""

    rows: slice
    length: int
    masks: dict[int | None, Tensor]


class Group(NamedTuple):
    """Rows that read keys from one list of blocks or slots, `source`. `copies`: sequences read, 1 or one per row."""

    rows: Tensor | slice
    read: Callable[[int, Tensor], KeysValues]
    source: Tensor
    copies: int
    buckets: list[Bucket]


class SdpaAttention:
    name = "sdpa"

    def __init__(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> None:
        self.spec, self.cache, self.device, self.dtype = spec, cache, device, dtype
        self.group_size = spec.num_heads // spec.num_kv_heads
        self.windows = sorted(set(spec.sliding_windows), key=lambda w: w or 0)
        self.one_backend = backend_chooser(device, dtype, spec.head_dim)

    # --- once per batch -----------------------------------------------------------------------------

    def plan(self, batch: Batch) -> tuple[Batch, list[Group]]:
        groups: list[Group] = []
        narrow: dict[int, list[tuple[int, int, Span]]] = defaultdict(list)
        forked: dict[int, list[tuple[int, int, list[int]]]] = defaultdict(list)
        for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
            linear = span.known + num_leading(span.draft)
            if linear >= WIDE:
                groups.append(self.wide_group(span, offset, linear))
            else:
                for i in range(linear):
                    narrow[key_grid(span.start + i + 1)].append((offset + i, span.start + i + 1, span))
            if linear < span.length:
                for row, length, slots in self.tree_rows(span, offset, linear):
                    forked[key_grid(length)].append((row, length, slots))
        groups += [self.narrow_group(length, rows) for length, rows in narrow.items()]
        groups += [self.forked_group(length, rows) for length, rows in forked.items()]
        return batch, groups

    def wide_group(self, span: Span, offset: int, count: int) -> Group:
        """Consecutive rows of one request: its keys are read once, each bucket sees a leading part."""
        lengths = range(span.start + 1, span.start + count + 1)
        buckets, begin = [], 0
        for i in range(1, count + 1):
            if i == count or key_grid(lengths[i]) != key_grid(lengths[begin]):
                buckets.append(self.bucket(slice(begin, i), lengths[begin:i]))
                begin = i
        index = self.block_index([span], key_grid(lengths[-1]))
        return Group(slice(offset, offset + count), self.cache.read_blocks, index, 1, buckets)

    def narrow_group(self, length: int, rows: list[tuple[int, int, Span]]) -> Group:
        """Single rows of any requests, each with its own keys."""
        index = self.block_index([span for _, _, span in rows], length)
        bucket = self.bucket(slice(0, len(rows)), [n for _, n, _ in rows])
        return Group(self.row_index([r for r, _, _ in rows]), self.cache.read_blocks, index, len(rows), [bucket])

    def forked_group(self, length: int, rows: list[tuple[int, int, list[int]]]) -> Group:
        """Rows in a tree: their keys are gathered slot by slot, ancestors as if they stood in a row."""
        index = to_device([slots + [slots[-1]] * (length - len(slots)) for _, _, slots in rows], self.device)
        bucket = self.bucket(slice(0, len(rows)), [n for _, n, _ in rows])
        return Group(
            self.row_index([r for r, _, _ in rows]), self.cache.read_slots, index.flatten(), len(rows), [bucket]
        )

    def tree_rows(self, span: Span, offset: int, begin: int) -> list[tuple[int, int, list[int]]]:
        """(row, number of keys, their slots in path order) of the guesses from row `begin` of the span on."""
        assert span.draft is not None
        size, blocks, known = self.cache.block_size, span.request.blocks, span.start + span.known
        slots = [blocks[p // size] * size + p % size for p in range(known + span.drafted)]
        prefix = slots[:known]
        return [
            (offset + span.known + node, known + len(path), prefix + [slots[known + ancestor] for ancestor in path])
            for node, path in enumerate(paths_of(span.draft))
            if span.known + node >= begin
        ]

    def block_index(self, spans: Sequence[Span], length: int) -> Tensor:
        """[len(spans) * length / block size] block ids; block 0 stands in where a request has no more blocks."""
        count = length // self.cache.block_size
        table = []
        for span in spans:
            blocks = span.request.blocks[:count]
            table += blocks
            table += [0] * (count - len(blocks))
        return to_device(table, self.device)

    def row_index(self, rows: list[int]) -> Tensor | slice:
        if rows == list(range(rows[0], rows[0] + len(rows))):
            return slice(rows[0], rows[0] + len(rows))
        return to_device(rows, self.device)

    def bucket(self, rows: slice, lengths: Sequence[int]) -> Bucket:
        """Masks [rows, 1, 1, padded length]: 0 where a row sees a key, -inf elsewhere."""
        padded = key_grid(lengths[0])
        seen = to_device(lengths, self.device)[:, None]
        keys = torch.arange(padded, device=self.device)
        masks: dict[int | None, Tensor] = {}
        for window in self.windows:
            hidden = keys >= seen
            if window is not None:
                hidden |= keys < seen - window
            mask = torch.zeros(hidden.shape, dtype=self.dtype, device=self.device).masked_fill_(hidden, float("-inf"))
            masks[window] = mask[:, None, None, :].expand(-1, 1, self.group_size, -1)
        return Bucket(rows, padded, masks)

    # --- once per layer -----------------------------------------------------------------------------

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: tuple[Batch, list[Group]]) -> Tensor:
        batch, groups = plan
        spec = self.spec
        self.cache.write(layer, batch.slots, k, v)
        q = q.reshape(-1, spec.num_kv_heads, self.group_size, spec.head_dim)
        window = spec.sliding_windows[layer]
        out = torch.empty_like(q)
        for group in groups:
            keys, values = (
                t.view(group.copies, -1, spec.num_kv_heads, spec.head_dim).transpose(1, 2)
                for t in group.read(layer, group.source)
            )
            queries = q[group.rows]
            with self.one_backend():
                parts = [self.attend(bucket, window, queries, keys, values) for bucket in group.buckets]
            out[group.rows] = parts[0] if len(parts) == 1 else torch.cat(parts)
        return out.view(-1, spec.num_heads, spec.head_dim)

    def attend(self, bucket: Bucket, window: int | None, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        queries = queries[bucket.rows]
        rows = len(queries)
        return F.scaled_dot_product_attention(
            queries,
            keys[:, :, : bucket.length].expand(rows, -1, -1, -1),
            values[:, :, : bucket.length].expand(rows, -1, -1, -1),
            attn_mask=bucket.masks[window],
            scale=self.spec.scale,
        )


def backend_chooser(
    device: torch.device, dtype: torch.dtype, head_dim: int
) -> Callable[[], AbstractContextManager[object]]:
    """What to hold around SDPA calls so that one arithmetic serves all rows.

    On CUDA torch picks a backend per call, by shape: flash takes no mask, cuDNN plans by shape, math goes through
    cuBLAS, whose algorithm follows the row count. The memory-efficient kernel gives every (query, head) a program
    that walks the keys in one order, takes expanded keys (a batch stride of 0) and any mask whose rows are whole
    multiples of 8 numbers, which the key grid gives. It loads 16 bytes of a head at a time.
    """
    if device.type != "cuda":
        return nullcontext
    if head_dim * dtype.itemsize % 16:
        raise ConfigError(
            f"--attention sdpa on CUDA needs heads of a multiple of 16 bytes; got head_dim {head_dim} in {dtype}, and "
            "torch's other backends would let neighbours change a row's last bits. Use --device cpu for this model."
        )
    return partial(sdpa_kernel, SDPBackend.EFFICIENT_ATTENTION)


class SdpaFactory:
    """How the core finds the backend."""

    name = SdpaAttention.name
    capabilities = AttentionCapabilities(
        tree_mask=True,
        ragged=True,
        block_sizes=(1, 2, 4, 8, 16, 32, 64),
        devices=("cpu", "cuda"),
        dtypes=("float32", "bfloat16", "float16"),
    )

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> SdpaAttention:
        return SdpaAttention(spec, cache, device, dtype)
