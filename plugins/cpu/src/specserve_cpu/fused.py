"""The decoder's layers in native calls: all of them in one with our own attention, two a layer around another's.

Has the bits of the pieces called one by one: the same functions in another loop. Takes adapters with it. Declines where
a projection has a delta of another kind or a kernel of somebody else's, which must be called in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.models.lowrank_delta import LowRankDelta
from specserve_cpu.adapters import native_segments
from specserve_cpu.attention import CpuPagedAttention, native_kind
from specserve_cpu.lending import lent
from specserve_cpu.linear import PackedLinear

if TYPE_CHECKING:
    from torch import Tensor

    from specserve import protocols
    from specserve.batch.batch import Batch
    from specserve.models.decoder import DecoderLayer, DecoderModel
    from specserve.models.projection import Projection
    from specserve.protocols import AttentionBackend
    from specserve_cpu import _native
    from specserve_cpu.attention import PagedPlan

LANES = 16


class NativeEnds:
    """The first and the last part of a `specserve.protocols.ForwardPass`."""

    def __init__(self, model: DecoderModel, stack: _native.Kind.FusedStack) -> None:
        self.model, self.stack = model, stack

    def embed(self, batch: Batch) -> Tensor:
        return self.model.embed(batch.input_ids)

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        out = torch.empty((batch.num_scored, self.model.vocab_size), dtype=torch.float32)
        if batch.num_scored:
            rows = batch.scored_rows
            self.stack.logits(lent(x), None if rows is None else lent(rows), lent(out))
        return out


class FusedPass(NativeEnds):
    """With attention of our own."""

    def layers(self, x: Tensor, batch: Batch, plan: PagedPlan, begin: int, end: int) -> Tensor:
        adapters = native_segments(batch.lora)
        self.stack.forward(lent(x), lent(batch.positions), lent(batch.slots), plan.rows, begin, end, adapters)
        return x


class AroundPass(NativeEnds):
    """Around an attention of somebody else's."""

    def __init__(self, model: DecoderModel, stack: _native.Kind.FusedStack, attention: AttentionBackend) -> None:
        super().__init__(model, stack)
        self.attention = attention
        self.sizes = (model.num_heads, model.num_kv_heads, model.num_kv_heads)

    def layers(self, x: Tensor, batch: Batch, plan: Any, begin: int, end: int) -> Tensor:
        adapters = native_segments(batch.lora)
        for layer in range(begin, end):
            qkv = x.new_empty((len(x), sum(self.sizes), self.model.head_dim))
            self.stack.enter(layer, lent(x), lent(batch.positions), adapters, lent(qkv.flatten(1)))
            q, k, v = qkv.split_with_sizes(self.sizes, 1)
            attended = self.attention.forward(layer, q, k, v, plan).flatten(1)
            self.stack.leave(layer, lent(x), lent(attended.contiguous()), adapters)
        return x


def fuse(machine: _native.Machine, model: DecoderModel, attention: AttentionBackend) -> FusedPass | AroundPass | None:
    """None where the model cannot be fused."""
    if model.config.intermediate_size % LANES or not all(is_free(p) for p in model.projections.values()):
        return None
    kind = native_kind(model.dtype)
    own = attention if isinstance(attention, CpuPagedAttention) else None
    windows = own.windows if own is not None else [0] * model.num_layers
    stack = kind.FusedStack(
        machine=machine,
        attention=None if own is None else own.native,
        heads=(model.num_heads, model.num_kv_heads, model.head_dim),
        layers=[layer_parts(kind, layer, window) for layer, window in zip(model.layers, windows, strict=True)],
        final_norm=model.final_norm,
        head=packed_of(model.lm_head),
        cos=model.rotary.cos,
        sin=model.rotary.sin,
        eps=model.config.norm_eps,
        scale=model.scale,
    )
    return AroundPass(model, stack, attention) if own is None else FusedPass(model, stack)


def is_free(projection: protocols.Projection) -> bool:
    """Is it this kernel set's alone, with nothing added but adapters?"""
    packed = projection.packed
    known = all(isinstance(delta, LowRankDelta) for delta in projection.deltas)
    return known and isinstance(packed, PackedLinear) and not packed.missing


def packed_of(projection: Projection) -> _native.Kind.PackedLinear:
    assert isinstance(projection.packed, PackedLinear), f"{projection.name} is not free"
    return projection.packed.native


def layer_parts(kind: type[_native.Kind], layer: DecoderLayer, window: int) -> _native.Kind.LayerParts:
    return kind.LayerParts(
        input_norm=layer.input_norm,
        qkv=packed_of(layer.qkv_proj),
        q_norm=layer.q_norm,
        k_norm=layer.k_norm,
        o=packed_of(layer.o_proj),
        post_norm=layer.post_attention_norm,
        gate_up=packed_of(layer.gate_up_proj),
        down=packed_of(layer.down_proj),
        window=window,
    )
