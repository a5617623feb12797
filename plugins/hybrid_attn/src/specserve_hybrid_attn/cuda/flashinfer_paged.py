"""The attention backend `flashinfer`: FlashInfer's paged prefill kernels over the cache as it lies, masks for trees.

Written against FlashInfer 0.7 (`BatchPrefillWithPagedKVCacheWrapper`, its `fa2` kernels: the only ones that take a
custom mask) from its source, and never run, neither here nor on a device: tests only check what is passed to it.

Splitting of keys over programs is off, so that merges depend on nothing; but the kernel's tile of queries follows from
the batch's average width, and a guess's keys come in node order, so neither a neighbour nor a draft is promised to
leave a row's last bits alone: `row_invariant` is False.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.batch.builder import to_device
from specserve.batch.drafts import depths_of, is_chain, parents_of
from specserve.config import BLOCK_SIZES
from specserve.errors import ConfigError
from specserve.protocols import AttentionBackend, AttentionCapabilities
from specserve_hybrid_attn.cuda.choose_kernels import mover_for, tree_kernels
from specserve_hybrid_attn.cuda.flash import int32, starts
from specserve_hybrid_attn.cuda.tree_masks import NO_WINDOW, WORD, Forest, MaskRows

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.kv.cache import KVCache
    from specserve.protocols import AttentionSpec
    from specserve_hybrid_attn.cuda.tree_masks import TreeKernels

WORKSPACE = 128 * 2**20
"""Bytes: what FlashInfer recommends."""
HEAD_DIMS = (64, 128, 256)


class InferPlan(NamedTuple):
    """slots: [T]. The rest of the plan lies in the wrappers, of which each belongs to one window."""

    slots: Tensor


class FlashInferAttention(AttentionBackend):
    """`module`: the package flashinfer, or something of its shape."""

    name = "flashinfer"

    def __init__(self, spec: AttentionSpec, cache: KVCache, device: torch.device, module: Any) -> None:
        self.spec, self.cache, self.device = spec, cache, device
        self.trees = tree_kernels(device)
        workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
        self.wrappers = {
            window: module.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD", backend="fa2")
            for window in dict.fromkeys(spec.sliding_windows)
        }
        pages = (-1, cache.block_size, spec.num_kv_heads, spec.head_dim)
        self.pages = [(keys.view(pages), values.view(pages)) for keys, values in cache.slots]

    def plan(self, batch: Batch) -> InferPlan:
        """Plans of the previous batch are replaced: the kernels that used them are queued before."""
        size, spec = batch.block_size, self.spec
        lengths = [span.start + span.length for span in batch.spans]
        held = [-(-length // size) for length in lengths]
        blocks = [block for span, count in zip(batch.spans, held, strict=True) for block in span.request.blocks[:count]]
        last = [length - (count - 1) * size for length, count in zip(lengths, held, strict=True)]
        tables = [int32(numbers, self.device) for numbers in (starts(batch.query_lens), starts(held), blocks, last)]
        masked = not all(is_chain(span.draft) for span in batch.spans)
        rows = RowTable(batch) if masked else None
        for window, wrapper in self.wrappers.items():
            seen: dict[str, Any] = {"causal": True, "window_left": -1 if window is None else window - 1}
            if rows is not None:
                seen = {"custom_mask": rows.mask(self.trees, window, self.device), "window_left": -1}
            wrapper.plan(
                *tables,
                spec.num_heads,
                spec.num_kv_heads,
                spec.head_dim,
                size,
                sm_scale=spec.scale,
                q_data_type=self.cache.data.dtype,
                kv_data_type=self.cache.data.dtype,
                disable_split_kv=True,
                **seen,
            )
        return InferPlan(batch.slots)

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: InferPlan) -> Tensor:
        self.cache.write(layer, plan.slots, k, v)
        out: Tensor = self.wrappers[self.spec.sliding_windows[layer]].run(q.contiguous(), self.pages[layer])
        return out


class RowTable:
    """What every row of a batch with trees sees, as numbers; FlashInfer takes the masks one row after the other."""

    def __init__(self, batch: Batch) -> None:
        self.forest = Forest()
        self.rows: list[tuple[int, int, int, int, int, int]] = []
        self.size = 0
        for span, offset in zip(batch.spans, batch.row_offsets, strict=True):
            known, keys = span.start + span.known, span.start + span.length
            for length in range(span.start + 1, known + 1):
                self.add(keys, length, length, -1, 0)
            if span.draft is not None:
                depths = depths_of(span.draft)
                first = self.forest.plant(parents_of(span.draft), depths, offset + span.known)
                for node, depth in enumerate(depths):
                    self.add(keys, known + depth, known, first + node, first)

    def add(self, keys: int, length: int, linear: int, node: int, tree: int) -> None:
        self.rows.append((self.size, keys, length, linear, node, tree))
        self.size += keys

    def mask(self, trees: TreeKernels, window: int | None, device: torch.device) -> Tensor:
        """[size] bool."""
        forest = self.forest
        nodes = to_device([forest.parents, forest.depths, forest.firsts], device)
        widest = max(forest.firsts.count(first) for first in set(forest.firsts))
        parents, depths, firsts = nodes
        ancestors = trees.ancestors(parents, depths, firsts, -(-widest // WORD), forest.deepest)
        rows = MaskRows(*to_device(list(zip(*self.rows, strict=True)), device))
        return trees.mask(rows, ancestors, depths, NO_WINDOW if window is None else window, self.size)


class FlashInferFactory:
    """How the plugin offers the backend, where the package is installed."""

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
