"""The attention backend cpu_paged: keys and values are written and read in place, whatever the page size.

Every query row is computed on its own: scores, weights and sums in one order, over segments of 128 keys of its own
path. Knows nothing about tiles of torch or about the kernel set beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.errors import ConfigError
from specserve.protocols import AttentionCapabilities
from specserve_cpu import _native

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch import Batch
    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionSpec


class PagedPlan(NamedTuple):
    """Which keys each row sees, and the slots where the rows' own go."""

    rows: _native.Plan
    slots: Tensor


class CpuPagedAttention:
    name = "cpu_paged"

    def __init__(self, machine: _native.Machine, spec: AttentionSpec, cache: KVCache, dtype: torch.dtype) -> None:
        self.spec, self.cache, self.dtype = spec, cache, dtype
        kind = native_kind(dtype)
        self.native = kind.PagedAttention(machine, cache.data, spec.num_heads, spec.scale, cache.key_limit)
        self.windows = [window or 0 for window in spec.sliding_windows]

    def plan(self, batch: Batch) -> PagedPlan:
        plan = _native.Plan(batch.block_size, self.native.rows_per_tile)
        for span in batch.spans:
            draft = span.draft
            parents = () if draft is None or draft.parents is None else draft.parents
            plan.add(span.start, span.length, span.known, span.request.blocks, parents)
        return PagedPlan(plan, batch.slots)

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: PagedPlan) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype)
        self.native.run(layer, q, k, v, plan.slots, plan.rows, self.windows[layer], out)
        return out


class PagedFactory:
    """How the core finds the backend."""

    name = CpuPagedAttention.name
    capabilities = AttentionCapabilities(
        tree_mask=True,
        ragged=True,
        block_sizes=(1, 2, 4, 8, 16, 32, 64),
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
    )

    def __init__(self, machine: _native.Machine) -> None:
        self.machine = machine

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> CpuPagedAttention:
        if spec.head_dim % 2 and dtype == torch.bfloat16:
            raise ConfigError(
                f"cpu_paged takes bfloat16 in pairs and needs heads of an even size; this model's head_dim is "
                f"{spec.head_dim}. Pass --attention sdpa, or --dtype float32."
            )
        return CpuPagedAttention(self.machine, spec, cache, dtype)


def native_kind(dtype: torch.dtype) -> type[_native.Kind]:
    """The native classes and functions for a dtype."""
    return {torch.float32: _native.float32, torch.bfloat16: _native.bfloat16}[dtype]
