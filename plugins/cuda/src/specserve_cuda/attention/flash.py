"""The attention backend `flash`: torch's FlashAttention 2 over packed sequences (varlen), for prompts and chains.

FlashAttention 2 reads pages of 256 tokens and their multiples only, so the keys of the requests are gathered block by
block before each layer's call; contiguous blocks are read in place. It takes no mask, so it cannot serve draft trees.
Never run on a device so far: see docs/gpu.md.

`row_invariant` is stated from the source and not from measurement. torch guarantees with `num_splits=1` that neighbours
change no bit. Key blocks are counted from a sequence's first key, one program reads them in one order, and a masked
block adds exact zeros, so chunked prefill should change no bit either. `window_size` always has 0 on the right, and
`max_k` is never below the window: otherwise a call of single rows or short sequences would take another kernel.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.api import BLOCK_SIZES, AttentionBackend, AttentionCapabilities
from specserve.api.batch import to_device
from specserve.api.drafts import is_chain
from specserve_cuda.attention.choose_kernels import mover_for
from specserve_cuda.attention.varlen import missing_varlen, torch_varlen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.api import AttentionSpec
    from specserve.api.attention import KeysValues, KVCache
    from specserve.api.batch import Batch
    from specserve_cuda.attention.varlen import Varlen

MAX_HEAD_DIM = 256


class FlashPlan(NamedTuple):
    """slots: [T]. read(layer) gathers the keys of all requests, each in whole blocks. cu_seqlens: [N + 1] int32, where
    each request's rows and gathered keys begin; seqused_k: [N] int32, how many of those keys are its own."""

    slots: Tensor
    read: Callable[[int], KeysValues]
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    seqused_k: Tensor
    max_q: int
    max_k: int


class FlashAttention(AttentionBackend):
    name = "flash"

    def __init__(self, spec: AttentionSpec, cache: KVCache, device: torch.device, varlen: Varlen) -> None:
        self.spec, self.cache, self.device, self.varlen = spec, cache, device, varlen
        self.max_window = max((window for window in spec.sliding_windows if window is not None), default=0)

    def plan(self, batch: Batch) -> FlashPlan:
        assert all(is_chain(span.draft) for span in batch.spans), "flash has no tree mask: drafts must be cut to chains"
        size, lengths = batch.block_size, [span.start + span.length for span in batch.spans]
        num_blocks = [-(-length // size) for length in lengths]
        block_ids: list[int] = []
        for span, count in zip(batch.spans, num_blocks, strict=True):
            block_ids += span.blocks[:count]
        cu_seqlens_q, cu_seqlens_k, seqused_k = (
            int32(numbers, self.device)
            for numbers in (cumulative(batch.query_lens), cumulative([count * size for count in num_blocks]), lengths)
        )
        max_q, max_k = max(batch.query_lens), max(*lengths, self.max_window)
        return FlashPlan(batch.slots, self.reader(block_ids), cu_seqlens_q, cu_seqlens_k, seqused_k, max_q, max_k)

    def reader(self, block_ids: Sequence[int]) -> Callable[[int], KeysValues]:
        size = self.cache.block_size
        if all(after == before + 1 for before, after in pairwise(block_ids)):
            return partial(self.cache.read_run, run=slice(block_ids[0] * size, (block_ids[-1] + 1) * size))
        return partial(self.cache.read_blocks, index=to_device(block_ids, self.device))

    @property
    def writable_cache(self) -> KVCache:
        return self.cache

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: FlashPlan) -> Tensor:
        self.cache.write(layer, plan.slots, k, v)
        return self.attend(layer, q, plan)

    def attend(self, layer: int, q: Tensor, plan: FlashPlan) -> Tensor:
        spec, window = self.spec, self.spec.sliding_windows[layer]
        keys, values = plan.read(layer)
        return self.varlen(
            q,
            keys,
            values,
            plan.cu_seqlens_q,
            plan.cu_seqlens_k,
            plan.max_q,
            plan.max_k,
            scale=spec.scale,
            window_size=(-1 if window is None else window - 1, 0),
            enable_gqa=spec.num_heads != spec.num_kv_heads,
            seqused_k=plan.seqused_k,
            num_splits=1,
        )


class FlashFactory:
    """`specserve.api.AttentionFactory`."""

    name = FlashAttention.name

    def __init__(self) -> None:
        self.capabilities = AttentionCapabilities(
            paged=False,
            tree_mask=False,
            ragged=True,
            row_invariant=True,
            block_sizes=BLOCK_SIZES,
            devices=("cuda",),
            dtypes=("bfloat16", "float16"),
            head_bytes={"cuda": 16},
            max_head_dim=MAX_HEAD_DIM,
            attend_only=True,
            missing=missing_varlen(),
            made_for=("prefill",),
        )

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> FlashAttention:
        cache.mover = mover_for(device)
        return FlashAttention(spec, cache, device, torch_varlen())


def cumulative(counts: Sequence[int]) -> list[int]:
    """[0, counts[0], counts[0] + counts[1], ...]."""
    return [0, *accumulate(counts)]


def int32(numbers: Sequence[int], device: torch.device) -> Tensor:
    """On the device, copied without synchronisation."""
    return to_device(numbers, device).to(torch.int32)
