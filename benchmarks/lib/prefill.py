"""Prefill of one prompt, and a reference that is not batch-invariant.

The engine computes row-wise operations in tiles of a fixed number of rows and attention in query tiles of a fixed
shape, so that a row's bits do not depend on its batch. The reference runs the same weights on all rows at once, and
attention as one causal call over the contiguous prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from benchmarks.lib.workload import greedy
from specserve.batch.builder import BatchBuilder
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.kernels.torch_kernels import TorchKernels
from specserve.kv.cache import KVCache
from specserve.protocols import AttentionBackend, AttentionSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.models.runner import Runner
    from specserve.models.served_model import ServedModel

LENGTH, BLOCK_SIZE = 2048, 16
CPU = torch.device("cpu")


class UntiledKernels(TorchKernels):
    """torch's kernels on all rows at once."""

    name = "torch, untiled"
    row_tile: int | None = None


class CausalAttention(AttentionBackend):
    """One call per layer over a whole prompt that starts at position 0."""

    name = "causal"

    def __init__(self, spec: AttentionSpec, cache: KVCache) -> None:
        self.spec, self.cache = spec, cache

    def plan(self, batch: Batch) -> Batch:
        assert len(batch.spans) == 1
        assert batch.spans[0].start == 0
        return batch

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Batch) -> Tensor:
        self.cache.write(layer, plan.slots, k, v)
        q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.spec.scale, enable_gqa=True)
        return out[0].transpose(0, 1)


def spec_for(model: ServedModel) -> AttentionSpec:
    return AttentionSpec(
        model.num_heads, model.num_kv_heads, model.head_dim, model.scale, BLOCK_SIZE, model.sliding_windows
    )


def cache_for(model: ServedModel) -> KVCache:
    """Room for a prompt of LENGTH tokens."""
    return KVCache(
        num_layers=model.num_layers,
        num_blocks=LENGTH // BLOCK_SIZE,
        block_size=BLOCK_SIZE,
        num_kv_heads=model.num_kv_heads,
        head_dim=model.head_dim,
        dtype=model.dtype,
        device=CPU,
    )


def prefill(runner: Runner, tokens: tuple[int, ...], chunks: Sequence[int]) -> None:
    """Compute a prompt of LENGTH tokens in these chunks, with logits of its last row only."""
    request = Request.admit(greedy("prefill", tokens, 1), seed=0, arrival=0.0, order=0, max_len=LENGTH + 1)
    request.blocks = list(range(LENGTH // BLOCK_SIZE))
    builder, start = BatchBuilder(BLOCK_SIZE, CPU), 0
    for length in chunks:
        last = start + length == LENGTH
        runner.forward(builder.schedule([ScheduledSpan.of(request, start, length, scored=int(last))]))
        start += length
