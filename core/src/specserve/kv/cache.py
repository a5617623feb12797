"""The tensors of the paged KV cache. Knows slots and blocks as numbers; nothing about who owns them.

Slot s holds the key and value of one token in every layer; block b is slots [b * size, (b + 1) * size).
Reads use index_select over rows as long as a whole block: advanced indexing costs 2-3 times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor


class KeysValues(NamedTuple):
    """Both [tokens, kv_heads, head_dim]."""

    keys: Tensor
    values: Tensor


class KVCache:
    """data: [layers, 2, slots, kv_heads, head_dim], zero at first."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        shape = (num_layers, 2, num_blocks * block_size, num_kv_heads, head_dim)
        self.data = torch.zeros(shape, dtype=dtype, device=device)
        by_block = self.data.view(num_layers, 2, num_blocks, block_size * num_kv_heads * head_dim)
        # one view per layer, made once: a view made per call costs as much as a small kernel
        self.slots = [(layer[0], layer[1]) for layer in self.data]
        self.blocks = [(layer[0], layer[1]) for layer in by_block]
        self.token_shape = (-1, num_kv_heads, head_dim)

    @staticmethod
    def bytes_per_block(num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        return num_layers * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """slots: [T] int64; keys, values: [T, kv_heads, head_dim]."""
        k, v = self.slots[layer]
        k.index_copy_(0, slots, keys)
        v.index_copy_(0, slots, values)

    def read_blocks(self, layer: int, index: Tensor) -> KeysValues:
        """index: [n] block ids, in path order."""
        k, v = self.blocks[layer]
        return KeysValues(
            k.index_select(0, index).view(self.token_shape), v.index_select(0, index).view(self.token_shape)
        )

    def read_run(self, layer: int, run: slice) -> KeysValues:
        """A run of neighbouring slots, in place: no copy."""
        k, v = self.slots[layer]
        return KeysValues(k[run], v[run])

    def read_slots(self, layer: int, index: Tensor) -> KeysValues:
        """index: [n] slots, in path order."""
        k, v = self.slots[layer]
        return KeysValues(k.index_select(0, index), v.index_select(0, index))

    def move(self, source: list[int], target: list[int]) -> None:
        """Copy tokens between slots, in every layer, as if all were read before any is written."""
        if source:
            index = torch.tensor([source, target], device=self.data.device)
            self.data.index_copy_(2, index[1], self.data.index_select(2, index[0]))
