"""The attention backend `flashinfer`: FlashInfer's paged prefill kernels, with custom masks for draft trees.

Written against FlashInfer 0.7 (`BatchPrefillWithPagedKVCacheWrapper`, its `fa2` kernels: the only ones that take a
custom mask) from its source, and never run, neither here nor on a device: tests only check what is passed to it.

Split-KV is off, so no merge depends on the batch. But the kernel's query tile follows from the batch's average query
length, and a draft token's keys come in node order, so neighbours and drafts may change a row's last bits:
`row_invariant` is False.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.api import BLOCK_SIZES, AttentionBackend, AttentionCapabilities, ConfigError
from specserve.api.batch import to_device
from specserve.api.drafts import depths_of, is_chain, parents_of
from specserve_cuda.attention.choose_kernels import mover_for, tree_kernels
from specserve_cuda.attention.flash import cumulative, int32
from specserve_cuda.attention.tree_masks import NO_WINDOW, WORD_BITS, Forest, MaskRows

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import AttentionSpec
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch
    from specserve_cuda.attention.tree_masks import TreeKernels

WORKSPACE_BYTES = 128 * 2**20
"""The size that FlashInfer recommends."""
HEAD_DIMS = (64, 128, 256)


class FlashInferPlan(NamedTuple):
    """slots: [T]. The rest of the plan is in the wrappers, one per window size."""

    slots: Tensor


class FlashInferAttention(AttentionBackend):
    """`module`: the package flashinfer, or a fake of it."""

    name = "flashinfer"

    def __init__(self, spec: AttentionSpec, cache: KVCache, device: torch.device, module: Any) -> None:
        self.spec, self.cache, self.device = spec, cache, device
        self.trees = tree_kernels(device)
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self.wrappers = {
            window: module.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
            for window in dict.fromkeys(spec.sliding_windows)
        }
        pages = (-1, cache.block_size, spec.num_kv_heads, spec.head_dim)
        self.pages = [(keys.view(pages), values.view(pages)) for keys, values in cache.slots]

    def plan(self, batch: Batch) -> FlashInferPlan:
        """Replaces the previous batch's plan, whose kernels are queued already."""
        spec, tables = self.spec, self.page_tables(batch)
        has_trees = not all(is_chain(span.draft) for span in batch.spans)
        masks = TreeMasks(batch) if has_trees else None
        for window, wrapper in self.wrappers.items():
            masking: dict[str, Any] = {"causal": True, "window_left": -1 if window is None else window - 1}
            if masks is not None:
                masking = {"custom_mask": masks.custom_mask(self.trees, window, self.device), "window_left": -1}
            wrapper.plan(
                *tables,
                spec.num_heads,
                spec.num_kv_heads,
                spec.head_dim,
                batch.block_size,
                sm_scale=spec.scale,
                q_data_type=self.cache.data.dtype,
                kv_data_type=self.cache.data.dtype,
                disable_split_kv=True,
                **masking,
            )
        return FlashInferPlan(batch.slots)

    def page_tables(self, batch: Batch) -> list[Tensor]:
        """qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len: int32 on the device."""
        size = batch.block_size
        lengths = [span.start + span.length for span in batch.spans]
        num_pages = [-(-length // size) for length in lengths]
        pages = [p for span, count in zip(batch.spans, num_pages, strict=True) for p in span.blocks[:count]]
        last_page_len = [length - (count - 1) * size for length, count in zip(lengths, num_pages, strict=True)]
        tables = cumulative(batch.query_lens), cumulative(num_pages), pages, last_page_len
        return [int32(numbers, self.device) for numbers in tables]

    @property
    def writable_cache(self) -> KVCache:
        return self.cache

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: FlashInferPlan) -> Tensor:
        self.cache.write(layer, plan.slots, k, v)
        return self.attend(layer, q, plan)

    def attend(self, layer: int, q: Tensor, plan: FlashInferPlan) -> Tensor:
        out: Tensor = self.wrappers[self.spec.sliding_windows[layer]].run(q.contiguous(), self.pages[layer])
        return out


class TreeMasks:
    """Which keys each row of a batch with trees attends to; FlashInfer takes the rows' masks concatenated."""

    def __init__(self, batch: Batch) -> None:
        self.forest = Forest()
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        self.size = 0
        for span in batch.spans:
            known, num_keys = span.start + span.known, span.start + span.length
            for length in range(span.start + 1, known + 1):
                self.add_row(num_keys, length, length, -1, 0)
            if span.draft is not None:
                depths = depths_of(span.draft)
                first = self.forest.add(parents_of(span.draft), depths)
                for node, depth in enumerate(depths):
                    self.add_row(num_keys, known + depth, known, first + node, first)

    def add_row(self, num_keys: int, length: int, prefix_len: int, node: int, tree_start: int) -> None:
        self.rows.append((self.size, num_keys, length, prefix_len, node, tree_start))
        self.size += num_keys

    def custom_mask(self, trees: TreeKernels, window: int | None, device: torch.device) -> Tensor:
        """[size] bool."""
        forest = self.forest
        parents, depths, tree_starts = to_device([forest.parents, forest.depths, forest.tree_starts], device)
        max_nodes = max(forest.tree_starts.count(first) for first in set(forest.tree_starts))
        ancestors = trees.ancestors(parents, depths, tree_starts, -(-max_nodes // WORD_BITS), forest.max_depth)
        rows = MaskRows(*to_device(list(zip(*self.rows, strict=True)), device))
        return trees.mask(rows, ancestors, depths, NO_WINDOW if window is None else window, self.size)


class FlashInferFactory:
    """`specserve.api.AttentionFactory`; offered where the package is installed."""

    name = FlashInferAttention.name
    capabilities = AttentionCapabilities(
        paged=True,
        tree_mask=True,
        ragged=True,
        row_invariant=False,
        block_sizes=BLOCK_SIZES,
        devices=("cuda",),
        dtypes=("bfloat16", "float16"),
        head_bytes={"cuda": 128},
    )

    def build(
        self, spec: AttentionSpec, cache: KVCache, device: torch.device, dtype: torch.dtype
    ) -> FlashInferAttention:
        if spec.head_dim not in HEAD_DIMS:
            raise ConfigError(
                f"attention flashinfer takes heads of {', '.join(map(str, HEAD_DIMS))} numbers; the model's have "
                f"{spec.head_dim}. Choose another attention backend."
            )
        try:
            module = importlib.import_module("flashinfer")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "flashinfer":
                raise
            raise ConfigError(
                "attention flashinfer needs the package flashinfer, which is not installed here. Install it "
                "(pip install 'specserve-plugin-hybrid-attn[flashinfer]'), or choose another attention backend."
            ) from error
        cache.mover = mover_for(device)
        return FlashInferAttention(spec, cache, device, module)
