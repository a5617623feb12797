"""The attention backend cpu_paged: it reads and writes the paged cache in place, whatever the block size.

A query's scores, probabilities and sums have a fixed order, over segments of 128 keys of its own path, so its bits do
not depend on the batch. Knows nothing of the kernel set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import torch

from specserve.api import BLOCK_SIZES, BY_SLOT, PHASES, Arithmetic, AttentionBackend, AttentionCapabilities, KVLayout
from specserve_cpu import _native
from specserve_cpu.dlpack import dlpack
from specserve_cpu.options import AUTO

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import AttentionSpec
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch
    from specserve_cpu.options import KeysValues


PANELS = KVLayout("panels", slots=16, numbers=16)
"""Sixteen neighbouring slots are stored as packed panels, which the kernels read as they are."""
LAYOUTS: dict[KeysValues, tuple[KVLayout, ...]] = {
    AUTO: (PANELS, BY_SLOT),
    "int8": (
        KVLayout("panels-int8", slots=16, numbers=16, dtype="int8", beside=4),
        KVLayout("by_slot-int8", dtype="int8", beside=4),
    ),
}
"""By the option `kv`. With 8 bits, a float32 scale lies beside the integers."""


NO_SLOT = -1
"""Of a row whose key and value are not stored."""


@dataclass(slots=True)
class PagedPlan:
    """Which keys each row sees, and the slots of the rows' own keys and values."""

    native: _native.AttentionPlan
    slots: Tensor


class PaddedPlan:
    """`specserve.api.GraphPlan`. A recording on a CPU makes its calls again, so that it reads the native plan of
    the step."""

    def __init__(self, backend: CpuPagedAttention, padded: Batch) -> None:
        self.backend, self.num_rows = backend, padded.num_rows
        self.padded, self.plan = padded, PagedPlan(backend.native_plan(padded), padded.slots)

    def clear(self) -> None:
        self.plan.native = self.backend.native_plan(self.padded)  # of no request
        self.plan.native.pad(self.num_rows)

    def load(self, batch: Batch) -> str:
        native = self.backend.native_plan(batch)
        native.pad(self.num_rows - batch.num_rows)
        self.plan.native = native
        return ""


class CpuPagedAttention(AttentionBackend):
    name = "cpu_paged"

    def __init__(self, machine: _native.Machine, spec: AttentionSpec, cache: KVCache, dtype: torch.dtype) -> None:
        self.spec, self.cache, self.dtype = spec, cache, dtype
        self.native = native_module(dtype).PagedAttention(
            machine, cache.data, spec.kv_layout.name, spec.num_heads, spec.scale, cache.key_limit,
            [rules_of(spec, layer) for layer in range(len(spec.sliding_windows))], spec.first_key,
        )  # fmt: skip
        if spec.kv_layout != BY_SLOT:
            cache.mover = self.move_slots
        self.rows_per_tile = self.native.rows_per_tile
        self.has_windows = any(window is not None for window in spec.sliding_windows)

    @property
    def arithmetic(self) -> Arithmetic:
        kept_as = self.spec.kv_layout.dtype
        return Arithmetic(*[self.name if kept_as is None else f"{self.name}-{kept_as}"] * 2)

    def plan(self, batch: Batch) -> PagedPlan:
        return PagedPlan(self.native_plan(batch), batch.slots)

    def graph_plan(self, padded: Batch, requests: int) -> PaddedPlan:
        return PaddedPlan(self, padded)

    def native_plan(self, batch: Batch) -> _native.AttentionPlan:
        plan = _native.AttentionPlan(batch.block_size, self.rows_per_tile)
        for span in batch.spans:
            draft = span.draft
            if span.sees_ahead:
                plan.add_together(span.start, span.length, span.blocks, self.has_windows)
                continue
            parents = () if draft is None or draft.parents is None else draft.parents
            plan.add(span.start, span.length, span.known, span.blocks, parents, span.first_node)
        return plan

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: PagedPlan) -> Tensor:
        out = torch.empty(q.shape, dtype=q.dtype)
        self.native.forward(layer, dlpack(q), dlpack(k), dlpack(v), dlpack(plan.slots), plan.native, dlpack(out))
        return out

    def attend(self, layer: int, q: Tensor, plan: PagedPlan) -> Tensor:
        unwritten = q.new_zeros((len(q), self.spec.num_kv_heads, self.spec.head_dim))
        nowhere = torch.full((len(q),), NO_SLOT)
        return self.forward(layer, q, unwritten, unwritten, PagedPlan(plan.native, nowhere))

    def write(self, layer: int, k: Tensor, v: Tensor, batch: Batch) -> None:
        nothing = _native.AttentionPlan(batch.block_size, self.rows_per_tile)
        nothing.pad(batch.num_rows)
        q = torch.zeros((batch.num_rows, self.spec.num_heads, self.spec.head_dim), dtype=self.dtype)
        self.forward(layer, q, k, v, PagedPlan(nothing, batch.slots))

    def move_slots(self, data: Tensor, source: Sequence[int], target: Sequence[int]) -> None:
        """`KVCache.mover` for panels."""
        assert data is self.cache.data, "the backend was built for another cache"
        self.native.move_slots(list(source), list(target))


class PagedFactory:
    """Builds the backend. `machine` is None where the kernels do not serve; the capabilities then exclude the backend
    too. kv: the plugin's option."""

    name = CpuPagedAttention.name
    capabilities = AttentionCapabilities(
        paged=True,
        tree_mask=True,
        ragged=True,
        row_invariant=True,
        block_sizes=BLOCK_SIZES,
        devices=("cpu",),
        dtypes=("float32", "bfloat16"),
        head_bytes={"cpu": 4},  # bfloat16 dot products take pairs
        soft_caps=True,
        sinks=True,
        draft_layers=True,
        attend_only=True,
        kv_layouts=LAYOUTS[AUTO],
        graphs=("full", "piecewise"),
        made_for=PHASES,
    )

    def __init__(self, machine: _native.Machine | None, kv: KeysValues = AUTO) -> None:
        self.machine = machine
        if kv != AUTO:
            self.capabilities = msgspec.structs.replace(
                self.capabilities, kv_layouts=LAYOUTS[kv], asked_for=(f"cpu.kv={kv}",)
            )

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> CpuPagedAttention:
        assert self.machine is not None, "the capabilities exclude this device or dtype"
        return CpuPagedAttention(self.machine, spec, cache, dtype)


def rules_of(spec: AttentionSpec, layer: int) -> _native.ScoreRules:
    sinks = spec.sinks_of(layer)
    return spec.sliding_windows[layer] or 0, spec.soft_cap(layer) or 0.0, None if sinks is None else sinks.contiguous()


def native_module(dtype: torch.dtype) -> type[_native.DtypeModule]:
    """The native classes and functions of a dtype."""
    return {torch.float32: _native.float32, torch.bfloat16: _native.bfloat16}[dtype]
