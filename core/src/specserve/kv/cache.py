"""The tensors of the paged KV cache. Knows slots and blocks as numbers; nothing about who owns them.

Slot s holds the key and value of one token in every layer; block b is slots [b * size, (b + 1) * size).
Reads use index_select over rows as long as a whole block: advanced indexing costs 2-3 times as much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from specserve.host_memory import HUGE_PAGE
from specserve.memory import zeros_in_huge_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


KEY_LIMIT = 2.0**50
"""Beyond the keys of any working model; a query times a key of this size is finite in float32."""


def finite(x: Tensor) -> Tensor:
    """A copy with 0 for NaN and infinities."""
    return torch.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0)


def move_tokens(data: Tensor, source: Sequence[int], target: Sequence[int]) -> None:
    """data: [layers, 2, slots, ...]. Copy tokens between slots as if all were read before any is written."""
    index = torch.tensor([source, target], device=data.device)
    data.index_copy_(2, index[1], data.index_select(2, index[0]))


Mover: TypeAlias = "Callable[[Tensor, Sequence[int], Sequence[int]], None]"


class KeysValues(NamedTuple):
    """Both [tokens, kv_heads, head_dim]."""

    keys: Tensor
    values: Tensor


class KVCache:
    """data: [layers, 2, slots, kv_heads, head_dim], zero at first.

    Where the attention backend lays neighbouring slots out in its own way (`AttentionSpec.kv_layout`), it alone reads
    and writes what is in them; blocks stay what they are. dtype and head_dim are those of the layout then: elements of
    a head, with what the layout keeps beside its numbers. Behind the blocks that requests hold lie `num_scratch` more,
    for draft tokens that a drafter computes with the target.
    """

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
        token_widths: Sequence[int] = (),
        token_dtype: torch.dtype = torch.float32,
        num_scratch: int = 0,
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        num_all = num_blocks + num_scratch
        self.key_limit = min(KEY_LIMIT, torch.finfo(dtype).max) if dtype.is_floating_point else KEY_LIMIT
        shape = (num_all * block_size, num_kv_heads, head_dim)
        self.data = zeros_in_huge_pages((num_layers, 2), shape, dtype, device)
        by_block = self.data.view(num_layers, 2, num_all, block_size * num_kv_heads * head_dim)
        # one view per layer, made once: a view made per call costs as much as a small kernel
        self.slots = [(layer[0], layer[1]) for layer in self.data]
        self.blocks = [(layer[0], layer[1]) for layer in by_block]
        self.token_shape = (-1, num_kv_heads, head_dim)
        self.token_states = [
            zeros_in_huge_pages((), (len(self.slots[0][0]), width), token_dtype, device) for width in token_widths
        ]
        """For each layer without attention, [slots, width]: what it keeps of each token."""
        self.mover: Mover = move_tokens
        """A backend with a kernel of its own for this may replace it when it is built."""
        self.others: tuple[KVCache, ...] = ()
        """Of layers whose heads have other sizes, under the same block ids: tokens are moved in all of them."""

    @staticmethod
    def bytes_per_block(num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        return num_layers * 2 * block_size * num_kv_heads * head_dim * dtype.itemsize

    def host_areas(self) -> list[tuple[int, int]]:
        """Address and bytes of the keys and of the values of each layer, as far as they lie in whole huge pages; empty
        on another device."""
        size = self.data[0, 0].numel() * self.data.itemsize // HUGE_PAGE * HUGE_PAGE
        of_others = [area for other in self.others for area in other.host_areas()]
        if self.data.device.type != "cpu" or not size:
            return of_others
        return [(area.data_ptr(), size) for layer in self.data for area in layer] + of_others

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """slots: [T] int64; keys, values: [T, kv_heads, head_dim].

        The cache holds finite numbers only. A masked key weighs 0, and 0 * NaN is NaN: a request whose numbers
        overflow would reach others through recycled blocks, and a rejected draft token its own request.
        """
        k, v = self.slots[layer]
        k.index_copy_(0, slots, finite(keys).clamp_(-self.key_limit, self.key_limit))
        v.index_copy_(0, slots, finite(values))

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

    def move(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Copy tokens between slots, in every layer, as if all were read before any is written."""
        if source:
            self.mover(self.data, source, target)
            for states in self.token_states:
                move_tokens(states[None, None], source, target)
            for other in self.others:
                other.move(source, target)
