"""The product of queries, keys and values over a call's tiles: torch's scaled_dot_product_attention, or written out in
float32 for layers that it cannot compute: with capped scores, as Gemma 2's, or with sinks, as gpt-oss's.

Both keep the bit rule by shape. Written out, each tile has matrix products of its own, whose shapes follow from the
tile's padded length alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from specserve.protocols import AttentionSpec

Product: TypeAlias = "Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]"
"""Queries [tiles, kv_heads, query rows, head_dim], keys, values, mask, scale -> the queries' shape."""
SERIAL = 2**14
"""Numbers that torch gives to one thread. Every row is a multiple of 64 numbers, so that no vector instruction has a
remainder, which torch would compute another way."""
ALIGNED = 4
"""Scores behind the keys' where there are sinks, all but one of them -inf: rows then begin at multiples of 16 bytes, by
which torch's softmax splits a row on CUDA."""


class WrittenOut:
    """A `Product`. sinks: [kv_heads, query rows], or None."""

    def __init__(self, soft_cap: float | None, sinks: Tensor | None) -> None:
        self.soft_cap = soft_cap
        self.sinks = None if sinks is None else F.pad(sinks[..., None], (0, ALIGNED - 1), value=float("-inf"))

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
        """queries: [tiles, kv_heads, query rows, d]; keys, values: [tiles, kv_heads, length, d]; mask: [tiles, 1, query
        rows, length], 0 or -inf -> the queries' shape."""
        tiles = range(len(queries))
        k, v = widened(keys), widened(values)
        scores = torch.stack([queries[i].float() @ k[i].transpose(1, 2) for i in tiles]).mul_(scale)
        if self.soft_cap is not None:
            cap(scores, self.soft_cap)
        weights = self.softmax(scores.add_(mask))
        return torch.stack([weights[i] @ v[i] for i in tiles]).to(queries.dtype)

    def softmax(self, scores: Tensor) -> Tensor:
        if self.sinks is None:
            return scores.softmax(-1)
        sinks = self.sinks.expand(len(scores), -1, -1, -1)
        return torch.cat((scores, sinks), -1).softmax(-1)[..., :-ALIGNED].contiguous()


def widened(x: Tensor) -> Tensor:
    """In float32, aligned alike wherever x lies; copied once where all tiles read the same."""
    first = x[:1] if x.stride(0) == 0 else x
    copied = first.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    return copied.expand(len(x), -1, -1, -1)


def cap(scores: Tensor, limit: float) -> None:
    """scores become limit * tanh(scores / limit)."""
    for part in torch.split(scores.view(-1), SERIAL):
        part.div_(limit).tanh_().mul_(limit)


def product_of(spec: AttentionSpec, layer: int, rows_per_tile: int, device: torch.device) -> Product:
    soft_cap, sinks = spec.soft_cap(layer), spec.sinks_of(layer)
    if soft_cap is None and sinks is None:
        return scaled_dot_product(device)
    if sinks is not None:  # of the query rows of a tile
        sinks = sinks.view(spec.num_kv_heads, -1).repeat(1, rows_per_tile)
    return WrittenOut(soft_cap, sinks)


def scaled_dot_product(device: torch.device) -> Product:
    """torch's SDPA in one arithmetic for all rows.

    On CUDA torch would pick a backend per call, by shape: flash takes no mask, cuDNN plans by shape, math goes through
    cuBLAS, whose algorithm follows the row count. The memory-efficient kernel, called by its name, gives every (query,
    head) a program that walks the keys in one order, takes expanded keys (a batch stride of 0) and any mask whose rows
    are whole multiples of 8 numbers, which the key grid gives.
    """
    return memory_efficient if device.type == "cuda" else chosen_by_torch


def memory_efficient(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    seen = mask.expand(-1, queries.shape[1], -1, -1)
    operator = torch.ops.aten._scaled_dot_product_efficient_attention
    out: Tensor = operator(queries, keys, values, seen, False, scale=scale)[0]
    return out


def chosen_by_torch(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Tensor:
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=scale)
