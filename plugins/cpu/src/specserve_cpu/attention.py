"""The attention backend cpu_paged: keys and values are written and read in place, whatever the page size.

Every query row is computed on its own: scores, weights and sums in one order, over segments of 128 keys of its own
path. Knows nothing about tiles of torch or about the kernel set beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve.config import BLOCK_SIZES
from specserve.protocols import BY_SLOT, PHASES, AttentionBackend, AttentionCapabilities, KVLayout
from specserve_cpu import _native
from specserve_cpu.lending import lent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionSpec


PANELS = KVLayout("panels", slots=16, numbers=16)
"""Sixteen neighbouring slots lie as the panels that the kernels multiply: nothing is packed in a step."""


class PagedPlan(NamedTuple):
    """Which keys each row sees, and the slots where the rows' own go."""

    rows: _native.Plan
    slots: Tensor


class CpuPagedAttention(AttentionBackend):
    name = "cpu_paged"

    def __init__(self, machine: _native.Machine, spec: AttentionSpec, cache: KVCache, dtype: torch.dtype) -> None:
        self.spec, self.cache, self.dtype = spec, cache, dtype
        kind = native_kind(dtype)
        self.native = kind.PagedAttention(
            machine, cache.data, spec.kv_layout.name, spec.num_heads, spec.scale, cache.key_limit
        )
        if spec.kv_layout != BY_SLOT:
            cache.mover = self.move
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
        self.native.run(layer, lent(q), lent(k), lent(v), lent(plan.slots), plan.rows, self.windows[layer], lent(out))
        return out

    def move(self, data: Tensor, source: Sequence[int], target: Sequence[int]) -> None:
        """`KVCache.mover` for panels."""
        assert data is self.cache.data, "made for another cache"
        self.native.move(list(source), list(target))


class PagedFactory:
    """How the core finds the backend. `machine` is None where the kernels do not serve: then it does not fit either,
    and its capabilities say why."""

    name = CpuPagedAttention.name
    capabilities = AttentionCapabilities(
        paged=True,
        tree_mask=True,
        ragged=True,
        row_invariant=True,
        block_sizes=BLOCK_SIZES,
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
        head_bytes={"cpu": 4},  # bfloat16 is taken in pairs
        kv_layouts=(PANELS, BY_SLOT),
        made_for=PHASES,
    )

    def __init__(self, machine: _native.Machine | None) -> None:
        self.machine = machine

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> CpuPagedAttention:
        assert self.machine is not None, "built for a device or dtype that it does not state"
        return CpuPagedAttention(self.machine, spec, cache, dtype)


def native_kind(dtype: torch.dtype) -> type[_native.Kind]:
    """The native classes and functions for a dtype."""
    return {torch.float32: _native.float32, torch.bfloat16: _native.bfloat16}[dtype]
