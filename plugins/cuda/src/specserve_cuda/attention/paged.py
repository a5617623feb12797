"""The attention backend `triton_paged`: trees and chains over a paged cache on CUDA, without copying keys.

Every row attends to the keys of its path in path order. Its bits are therefore the same alone and in a batch, as a node
of a draft tree and decoded later. The plan is in `paged_plan`, the arithmetic in `paged_kernels`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from specserve.api import BLOCK_SIZES, AttentionBackend, AttentionCapabilities, ConfigError
from specserve_cuda.attention.choose_kernels import mover_for, tree_kernels
from specserve_cuda.attention.paged_plan import WORKSPACE_BYTES, PagedPlan, lay_out, make_plan, tile_config_for
from specserve_cuda.attention.plan_buffers import MAX_DEPTH, PaddedPlan, PlanMemory

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

    from specserve.api import AttentionSpec
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch
    from specserve_cuda.attention.paged_plan import TileConfig


class PagedKernels(Protocol):
    """`paged_kernels.TritonPaged` or its reference in torch."""

    bytes_per_item: int

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None: ...

    def attend(self, layer: int, q: Tensor, plan: PagedPlan, window: int | None) -> Tensor: ...


class PagedAttention(AttentionBackend):
    name = "triton_paged"

    def __init__(
        self,
        spec: AttentionSpec,
        cache: KVCache,
        device: torch.device,
        make_kernels: Callable[[AttentionSpec, KVCache, TileConfig], PagedKernels],
        config: TileConfig | None = None,
    ) -> None:
        self.device, self.windows, self.cache = device, spec.sliding_windows, cache
        self.num_kv_heads = spec.num_kv_heads
        self.memory: PlanMemory | None = None
        self.config = config or tile_config_for(cache.data.itemsize, spec.num_heads // spec.num_kv_heads)
        self.kernels = make_kernels(spec, cache, self.config)
        self.trees = tree_kernels(device)

    def graph_plan(self, padded: Batch, requests: int) -> PagedGraphPlan:
        return PagedGraphPlan(self, padded)

    def plan_memory(self) -> PlanMemory:
        """Allocated with the first graph."""
        if self.memory is None:
            items = max(1, WORKSPACE_BYTES // self.kernels.bytes_per_item)
            self.memory = PlanMemory(items, self.num_kv_heads, self.device)
        return self.memory

    def plan(self, batch: Batch) -> PagedPlan:
        return make_plan(batch, self.config, self.kernels.bytes_per_item, self.trees, self.device)

    @property
    def writable_cache(self) -> KVCache:
        return self.cache

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: PagedPlan) -> Tensor:
        self.kernels.write(layer, plan.slots, k, v)
        return self.attend(layer, q, plan)

    def attend(self, layer: int, q: Tensor, plan: PagedPlan) -> Tensor:
        return self.kernels.attend(layer, q, plan, self.windows[layer])


class PagedGraphPlan:
    """`specserve.api.GraphPlan`."""

    def __init__(self, backend: PagedAttention, padded: Batch) -> None:
        self.backend = backend
        self.padded = PaddedPlan(backend.plan_memory(), padded)
        self.plan = self.padded.plan

    def clear(self) -> None:
        self.padded.clear()

    def load(self, batch: Batch) -> str:
        backend = self.backend
        plan = lay_out(batch, backend.config, backend.kernels.bytes_per_item, MAX_DEPTH)
        return self.padded.load(plan, backend.trees)


class PagedFactory:
    """`specserve.api.AttentionFactory`. Triton is imported when the backend is built."""

    name = PagedAttention.name
    capabilities = AttentionCapabilities(
        paged=True,
        tree_mask=True,
        ragged=True,
        row_invariant=True,
        block_sizes=BLOCK_SIZES,
        devices=("cuda",),
        dtypes=("float32", "bfloat16", "float16"),
        soft_caps=True,
        sinks=True,
        draft_layers=True,
        attend_only=True,
        made_for=("decode", "verify"),
        graphs=("full", "piecewise"),
    )

    def build(self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype) -> PagedAttention:
        try:
            from specserve_cuda.attention.paged_kernels import TritonPaged
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "triton":
                raise
            raise ConfigError(
                "attention triton_paged is written in Triton, and no module 'triton' is installed here. Install it "
                "(pip install triton; CUDA builds of torch bring it), or choose another attention backend."
            ) from error
        cache.mover = mover_for(device)
        return PagedAttention(spec, cache, device, TritonPaged)
