"""Runs a batch through the model: row-wise pieces in tiles, attention over all rows in between.

Owns the tile (nobody else knows the number): with kernels whose bits depend on the row count, every
row-wise piece is given exactly `kernels.row_tile` rows, padded, so that a row's arithmetic is the same in a
prefill of 500 rows and in a decode of one. Knows nothing of requests, drafts or sampling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve.types import ForwardOutput

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

    from specserve.batch import Batch
    from specserve.models.decoder import DecoderModel
    from specserve.protocols import AttentionBackend, KernelSet


class Runner:
    """`hidden_layers`: which layers' outputs somebody needs; layer n's output is key n + 1, the embedding key 0."""

    def __init__(
        self,
        model: DecoderModel,
        kernels: KernelSet,
        attention: AttentionBackend,
        hidden_layers: Collection[int] = (),
    ) -> None:
        self.model, self.attention = model, attention
        self.row_tile = kernels.row_tile
        self.hidden_layers = {layer % (model.num_layers + 1) for layer in hidden_layers}

    @torch.inference_mode()
    def forward(self, batch: Batch) -> ForwardOutput:
        """Launch the forward pass; on CUDA this returns before it is done."""
        model, T = self.model, batch.num_rows
        plan = self.attention.plan(batch)
        ids, positions = self.pad(batch.input_ids), self.pad(batch.positions)
        tiles = self.tiles(len(ids))
        rotations = [model.rotation(positions[tile]) for tile in tiles]
        xs = [model.embed(ids[tile]) for tile in tiles]
        # rows beyond T are padding: whatever they hold, no other row sees it
        attended = xs[0].new_zeros((len(ids), model.num_heads, model.head_dim))
        hidden: dict[int, Tensor] = {}
        for layer in range(model.num_layers):
            self.tap(hidden, layer, xs, T)
            pieces = [
                model.attention_input(layer, x, rotation, tile)
                for x, rotation, tile in zip(xs, rotations, tiles, strict=True)
            ]
            q, k, v = (joined(parts)[:T] for parts in zip(*pieces, strict=True))
            attended[:T] = self.attention.forward(layer, q, k, v, plan)
            xs = [model.attention_output(layer, x, attended[tile], tile) for x, tile in zip(xs, tiles, strict=True)]
        self.tap(hidden, model.num_layers, xs, T)
        return ForwardOutput(self.logits(joined(xs)[:T], batch), hidden)

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        """x: [T, H] -> [scored rows, V] float32."""
        if batch.num_scored == 0:
            return x.new_empty((0, self.model.vocab_size), dtype=torch.float32)
        scored = self.pad(x if batch.scored_rows is None else x.index_select(0, batch.scored_rows))
        return joined([self.model.head(scored[tile]) for tile in self.tiles(len(scored))])[: batch.num_scored]

    def tap(self, hidden: dict[int, Tensor], layer: int, xs: list[Tensor], num_rows: int) -> None:
        if layer in self.hidden_layers:
            hidden[layer] = joined(xs)[:num_rows].clone()

    def pad(self, rows: Tensor) -> Tensor:
        """Fill up with zero rows to whole tiles."""
        missing = -len(rows) % self.row_tile if self.row_tile else 0
        return rows if missing == 0 else torch.cat((rows, rows.new_zeros((missing, *rows.shape[1:]))))

    def tiles(self, num_rows: int) -> list[slice]:
        tile = self.row_tile or num_rows
        return [slice(begin, begin + tile) for begin in range(0, num_rows, tile)]


def joined(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
