"""The attention backend `flash`: torch's FlashAttention 2 over packed sequences, for prompts and chains.

FlashAttention 2 reads pages of 256 tokens and their multiples only, so the keys of a request are gathered block by
block before each layer's call; a request whose blocks are neighbours is read in place. It has no mask: drafts that
branch are not for it. Never run on a device so far: see docs/gpu.md.

Why `row_invariant` is stated, from its source and not from measurement: `num_splits=1` is torch's promise against
neighbours. Key blocks are counted from a sequence's first key, one program takes them in one order, and a block that a
row does not see adds exact zeros to it, so the cut of a prompt into spans should not show either. `window_size` is
always given with 0 on the right, and `max_k` is never below the window: a call of single rows or short sequences would
otherwise take another kernel.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.batch.builder import to_device
from specserve.batch.drafts import is_chain
from specserve.config import BLOCK_SIZES
from specserve.errors import ConfigError
from specserve.protocols import AttentionBackend, AttentionCapabilities
from specserve_hybrid_attn.cuda.choose_kernels import mover_for
from specserve_hybrid_attn.cuda.varlen import torch_varlen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.kv.cache import KeysValues, KVCache
    from specserve.protocols import AttentionSpec
    from specserve_hybrid_attn.cuda.varlen import Varlen

MOST_DIMS = 256


class FlashPlan(NamedTuple):
    """slots: [T]. read(layer) gathers the keys of all requests, each in whole blocks. queries, keys: [N + 1] int32,
    where each request's rows and gathered keys begin; lengths: [N] int32, how many of those keys count."""

    slots: Tensor
    read: Callable[[int], KeysValues]
    queries: Tensor
    keys: Tensor
    lengths: Tensor
    most_queries: int
    most_keys: int


class FlashAttention(AttentionBackend):
    name = "flash"

    def __init__(self, spec: AttentionSpec, cache: KVCache, device: torch.device, varlen: Varlen) -> None:
        self.spec, self.cache, self.device, self.varlen = spec, cache, device, varlen
        self.widest = max((window for window in spec.sliding_windows if window is not None), default=0)

    def plan(self, batch: Batch) -> FlashPlan:
        assert all(is_chain(span.draft) for span in batch.spans), "flash has no tree mask: drafts must be cut to chains"
        size, lengths = batch.block_size, [span.start + span.length for span in batch.spans]
        held = [-(-length // size) for length in lengths]
        blocks: list[int] = []
        for span, count in zip(batch.spans, held, strict=True):
            blocks += span.request.blocks[:count]
        queries, keys, used = (
            int32(numbers, self.device)
            for numbers in (starts(batch.query_lens), starts([count * size for count in held]), lengths)
        )
        most_keys = max(*lengths, self.widest)
        return FlashPlan(batch.slots, self.reader(blocks), queries, keys, used, max(batch.query_lens), most_keys)

    def reader(self, blocks: Sequence[int]) -> Callable[[int], KeysValues]:
        size = self.cache.block_size
        if all(after == before + 1 for before, after in pairwise(blocks)):
            return partial(self.cache.read_run, run=slice(blocks[0] * size, (blocks[-1] + 1) * size))
        return partial(self.cache.read_blocks, index=to_device(blocks, self.device))

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: FlashPlan) -> Tensor:
        spec, window = self.spec, self.spec.sliding_windows[layer]
        self.cache.write(layer, plan.slots, k, v)
        keys, values = plan.read(layer)
        return self.varlen(
            q,
            keys,
            values,
            plan.queries,
            plan.keys,
            plan.most_queries,
            plan.most_keys,
            scale=spec.scale,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=spec.num_heads != spec.num_kv_heads,
            seqused_k=plan.lengths,
            num_splits=1,
        )


class FlashFactory:
    """How the plugin offers the backend."""

    name = FlashAttention.name
    capabilities = AttentionCapabilities(
        paged=False,
        tree_mask=False,
        ragged=True,
        row_invariant=True,
        block_sizes=BLOCK_SIZES,
        devices=("cuda",),
        dtypes=("bfloat16", "float16"),
        head_bytes={"cuda": 16},
        made_for=("prefill",),
    )

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> FlashAttention:
        if spec.head_dim > MOST_DIMS:
            raise ConfigError(
                f"attention flash takes heads of at most {MOST_DIMS} numbers; the model's have {spec.head_dim}. "
                "Choose another attention backend."
            )
        cache.mover = mover_for(device)
        return FlashAttention(spec, cache, device, torch_varlen())


def starts(counts: Sequence[int]) -> list[int]:
    """[0, counts[0], counts[0] + counts[1], ...]."""
    return [0, *accumulate(counts)]


def int32(numbers: Sequence[int], device: torch.device) -> Tensor:
    """On the device; the host does not wait."""
    return to_device(numbers, device).to(torch.int32)
