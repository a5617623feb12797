"""Passes of a block head piece by piece: over any kernel set, any attention backend and any sampler.

Every row-wise piece is computed in the kernel set's tiles, so that a row's bits do not depend on its neighbours.
Letters: R rows, H the head's hidden size, W numbers of the target's hidden state, L layers, K key heads, d head size.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from specserve.api import BlockPass, BlockRows, DraftStep
from specserve.api.batch import to_device
from specserve.api.models import forward_pass, in_tiles
from specserve_eagle.block.places import Places, chains_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from specserve.api import AttentionBackend, DraftToken, ScoredRow
    from specserve.api.batch import Batch, Request
    from specserve.api.models import BlockHead


class PiecewiseBlockPass(BlockPass):
    """`specserve.api.BlockPass`."""

    def __init__(self, head: BlockHead, attention: AttentionBackend) -> None:
        self.head, self.attention = head, attention
        decoder = head.decoder
        self.decoder, self.kernels = decoder, decoder.kernels
        self.passes = forward_pass(decoder, decoder.kernels, attention)
        self.in_tiles = partial(in_tiles, decoder.kernels.row_tile)

    def step(
        self, batch: Batch, hidden: Tensor | None, rows: Sequence[ScoredRow], count: int, *, from_target: bool
    ) -> DraftStep:
        assert hidden is not None, "every row reads a hidden state"
        config = self.decoder.config
        shape = (-1, config.num_layers, 2, config.num_kv_heads, config.head_dim)
        made = self.in_tiles(self.keys_values, hidden, batch.positions).view(shape)
        for layer in range(config.num_layers):
            keys, values = made[:, layer].unbind(1)
            self.attention.write(layer, keys.contiguous(), values.contiguous(), batch)
        return DraftStep([[] for _ in rows], None)

    def keys_values(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """hidden: [R, W]; positions: [R] int64 -> [R, 2 L K d], the keys normed and rotated."""
        head, config = self.head, self.decoder.config
        context = self.kernels.rms_norm(head.fc(hidden), head.hidden_norm, config.norm_eps)
        made = head.keys_values(context).view(-1, config.num_layers, 2, config.num_kv_heads, config.head_dim)
        made = made.clone()
        for layer, rotation in enumerate(self.decoder.rotations(positions)):
            norm = self.decoder.layers[layer].k_norm
            assert norm is not None
            assert rotation is not None
            keys = self.decoder.normed_heads(made[:, layer, 0].contiguous(), norm)
            made[:, layer, 0] = self.kernels.rotary(keys, rotation.cos, rotation.sin)
        return made.flatten(1)

    def draft(
        self, committed: Batch, hidden: Tensor, blocks: Batch, requests: Sequence[Request], wanted: Sequence[int]
    ) -> list[list[DraftToken]]:
        rows = self.rows(committed, hidden, blocks, wanted)
        return chains_of(Places(self.head, rows, requests, wanted))

    def rows(self, committed: Batch, hidden: Tensor, blocks: Batch, wanted: Sequence[int]) -> BlockRows:
        self.step(committed, hidden, [], 1, from_target=True)
        proposing = [
            offset + self.head.first_proposing + i
            for offset, count in zip(blocks.row_offsets, wanted, strict=True)
            for i in range(count)
        ]
        scored = to_device(proposing, self.decoder.device)
        batch = msgspec.structs.replace(blocks, scored_rows=scored, num_scored=len(proposing))
        x = self.passes.layers(self.passes.embed(batch), batch, self.attention.plan(batch))
        states = None
        if self.head.reads_states:
            rows = x[: batch.num_rows].index_select(0, scored)
            states = self.in_tiles(lambda part: self.decoder.normed(part, self.decoder.final_norm), rows)
        return BlockRows(self.passes.logits(x, batch), states)
