"""Attention over the paged KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from specserve.batch import Batch


class AttentionCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a backend can do, stated once."""

    tree_mask: bool
    ragged: bool
    block_sizes: tuple[int, ...]
    devices: tuple[str, ...]
    dtypes: tuple[str, ...]
    graphs: tuple[str, ...] = ()


class AttentionSpec(msgspec.Struct, frozen=True):
    """The numbers that a backend is built from."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    block_size: int
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""


class AttentionBackend(Protocol):
    """Attention of a batch's rows over the paged KV cache. Row r sees exactly its own path, itself included."""

    name: str

    def plan(self, batch: Batch) -> Any:
        """Work out, once per batch, what every layer needs. Called after the batch's blocks are allocated."""
        ...

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: Any) -> Tensor:
        """Write k, v: [T, kv_heads, head_dim] into the cache, attend q: [T, heads, head_dim] -> same shape.

        The cache must hold finite numbers only: see `KVCache.write`.
        """
        ...


@runtime_checkable
class AttentionFactory(Protocol):
    """A backend before it knows the model."""

    name: str
    capabilities: AttentionCapabilities

    def build(self, spec: AttentionSpec, cache: Any, device: torch.device, dtype: torch.dtype) -> AttentionBackend: ...
