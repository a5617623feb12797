"""A forward pass piece by piece: row-wise pieces in tiles, attention over all rows in between.

Owns the tile height, which only this module uses: with kernels whose bits depend on the row count, every row-wise piece
is given exactly `row_tile` rows, padded, so that a row's arithmetic is the same in a prefill of 500 rows and in a
decode of one. Knows nothing of requests, drafts or sampling.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from specserve.batch.preceding import PrecedingTokens
from specserve.batch.state_runs import state_runs
from specserve.faults import BadAnswerError
from specserve.models.decoder import DecoderModel
from specserve.models.projection import BatchRows
from specserve.protocols import ForwardPass, RecurrentMixer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import Batch
    from specserve.models.decoder import AttentionInput
    from specserve.models.served_model import ServedModel
    from specserve.protocols import AttentionBackend, KernelSet


NO_TAPS: Mapping[int, Tensor] = MappingProxyType({})


def copy_tap(taps: Mapping[int, Tensor], layer: int, x: Tensor) -> None:
    """Copy the rows of x, without padding, to the tap of this layer if there is one."""
    if layer in taps:
        taps[layer].copy_(x[: len(taps[layer])])


def forward_pass(model: ServedModel, kernels: KernelSet, attention: AttentionBackend) -> ForwardPass:
    """The kernel set's own pass over the layers where it can fuse them, else piece by piece, as the layers of a family
    with a decoder of its own; that of a library for its models."""
    if not isinstance(model, DecoderModel):
        return model.forward_pass(attention)
    known = type(model) is DecoderModel and model.config.beyond_llama <= kernels.fuses
    fused = kernels.fuse(model, attention) if known else None
    return TiledPass(model, attention, kernels.row_tile) if fused is None else fused


class TiledPass(ForwardPass):
    """`specserve.protocols.ForwardPass` over any kernel set and any attention backend."""

    def __init__(self, model: DecoderModel, attention: AttentionBackend, row_tile: int | None) -> None:
        self.model, self.attention, self.row_tile = model, attention, row_tile

    def embed(self, batch: Batch) -> Tensor:
        return self.model.embed(self.pad(batch.input_ids))

    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = NO_TAPS, aux: Tensor | None = None
    ) -> Tensor:
        model, T = self.model, batch.num_rows
        positions = self.pad(batch.positions)
        tiles = self.tiles(len(positions))
        rotations = [model.rotations(positions[tile]) for tile in tiles]
        xs = [x[tile] for tile in tiles]
        aux_tiles = [None if aux is None else aux[tile] for tile in tiles]
        places = [BatchRows(tile, batch.lora) for tile in tiles]
        ids = self.pad(batch.input_ids)
        given = [model.layer_inputs(rows, ids[at.rows], at) for rows, at in zip(xs, places, strict=True)]
        attending = Attending(self, plan, T)
        tokens = None if model.reach is None else PrecedingTokens.of(batch, model.reach, x.device)
        runs = state_runs(batch) if model.recurrent else []
        for layer in range(model.num_layers):
            if layer in taps:
                copy_tap(taps, layer, joined(xs))
            mixer = model.layers[layer].mixer
            gates: list[Tensor | None] = [None] * len(tiles)
            if mixer is not None:
                rows = joined([model.mixer_input(layer, rows, at) for rows, at in zip(xs, places, strict=True)])
                if isinstance(mixer, RecurrentMixer):
                    own_states = model.layer_states[model.recurrent_layers[layer]]
                    mixed = self.attention.mix_states(mixer, rows[:T], own_states, runs)
                else:
                    assert tokens is not None, "the model has a reach"
                    kept = model.token_states[model.state_layers[layer]]
                    mixed = self.attention.mix(mixer, rows[:T], kept, tokens)
                if mixed.shape != (T, mixer.out_features):  # a broadcast would reach the rows of other requests
                    raise BadAnswerError("gave mixed rows of another shape")
                mixed = self.pad(mixed)
            else:
                pieces = [
                    model.attention_input(layer, rows, rotation[layer], at, aux_tile)
                    for rows, rotation, at, aux_tile in zip(xs, rotations, places, aux_tiles, strict=True)
                ]
                gates = [piece.gates for piece in pieces]
                mixed = attending(layer, pieces)
            xs = [
                model.attention_output(layer, rows, mixed[at.rows], at, of_tile)
                for rows, at, of_tile in zip(xs, places, gates, strict=True)
            ]
            xs = [
                model.layer_end(layer, rows, at, None if of_tile is None else of_tile[layer])
                for rows, at, of_tile in zip(xs, places, given, strict=True)
            ]
        out = joined(xs)
        copy_tap(taps, model.num_layers, out)
        return out

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        if batch.num_scored == 0:
            return x.new_empty((0, self.model.vocab_size), dtype=torch.float32)
        rows = x[: batch.num_rows]
        scored = self.pad(rows if batch.scored_rows is None else rows.index_select(0, batch.scored_rows))
        return joined([self.model.head(scored[tile]) for tile in self.tiles(len(scored))])[: batch.num_scored]

    def pad(self, rows: Tensor) -> Tensor:
        """Fill up with zero rows to whole tiles."""
        missing = -len(rows) % self.row_tile if self.row_tile else 0
        return rows if missing == 0 else torch.cat((rows, rows.new_zeros((missing, *rows.shape[1:]))))

    def tiles(self, num_rows: int) -> list[slice]:
        tile = self.row_tile or num_rows
        return [slice(begin, begin + tile) for begin in range(0, num_rows, tile)]


class Attending:
    """Attention of one pass's rows, layer by layer, over the first `num_rows` of the padded ones."""

    def __init__(self, passes: TiledPass, plan: object, num_rows: int) -> None:
        self.passes, self.plan, self.num_rows = passes, plan, num_rows
        self.shared: dict[int, tuple[Tensor, Tensor]] = {}
        """Keys and values of these rows, by layers that others read."""
        self.padded: dict[tuple[int, ...], Tensor] = {}
        """By the shape of a row. Rows behind the first are padding: no other row reads them."""

    def __call__(self, layer: int, pieces: Sequence[AttentionInput]) -> Tensor:
        """pieces: of each tile -> [padded rows, heads, d]."""
        model = self.passes.model
        q, k, v = (joined(parts) for parts in zip(*(piece[:3] for piece in pieces), strict=True))
        count, q, k, v = len(q), *(rows[: self.num_rows] for rows in (q, k, v))
        source = model.kv_sources.get(layer)
        if source is not None:  # written once more, to the same slots, as every backend does both in one call
            k, v = self.shared[source]
        elif layer in model.kv_sources.values():
            self.shared[layer] = k, v
        out = self.passes.attention.forward(model.cache_layers[layer], q, k, v, self.plan)
        if out.shape != q.shape:  # a broadcast would reach the rows of other requests
            raise BadAnswerError("gave attention of another shape than the queries")
        if count == self.num_rows:  # in one dtype and layout, whatever the backend's and the number of rows
            return out.to(q.dtype).contiguous()
        shape = (count, *q.shape[1:])
        if shape not in self.padded:
            self.padded[shape] = q.new_zeros(shape)
        padded = self.padded[shape]
        padded[: self.num_rows] = out
        return padded


def in_tiles(row_tile: int | None, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
    """A row-wise function of one or several tensors of equally many rows, given exactly `row_tile` rows at a time."""
    count = len(rows[0])
    if row_tile is None:
        return function(*rows)
    missing = -count % row_tile
    full = [torch.cat((x, x.new_zeros((missing, *x.shape[1:])))) if missing else x for x in rows]
    tiles = [slice(begin, begin + row_tile) for begin in range(0, count, row_tile)]
    return joined([function(*(x[tile] for x in full)) for tile in tiles])[:count]


def joined(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
