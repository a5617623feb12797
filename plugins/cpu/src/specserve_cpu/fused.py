"""The decoder's layers as one native call: what lies between two attention calls, and those too.

Has the bits of the pieces called one by one: the same functions in another loop. Declines where a projection has a
delta or a kernel of somebody else's, which must be called in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve_cpu.attention import native_kind
from specserve_cpu.linear import PackedLinear

if TYPE_CHECKING:
    from torch import Tensor

    from specserve import protocols
    from specserve.batch import Batch
    from specserve.models.decoder import DecoderLayer, DecoderModel
    from specserve.projection import Projection
    from specserve_cpu import _native
    from specserve_cpu.attention import CpuPagedAttention, PagedPlan

LANES = 16


class FusedPass:
    """`specserve.protocols.ForwardPass`."""

    def __init__(self, model: DecoderModel, stack: _native.Kind.FusedStack) -> None:
        self.model, self.stack = model, stack

    def embed(self, batch: Batch) -> Tensor:
        return self.model.embed(batch.input_ids)

    def layers(self, x: Tensor, batch: Batch, plan: PagedPlan, begin: int, end: int) -> Tensor:
        self.stack.forward(x, batch.positions, batch.slots, plan.rows, begin, end)
        return x

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        out = torch.empty((batch.num_scored, self.model.vocab_size), dtype=torch.float32)
        if batch.num_scored:
            self.stack.logits(x, batch.scored_rows, out)
        return out


def fuse(machine: _native.Machine, model: DecoderModel, attention: CpuPagedAttention) -> FusedPass | None:
    """None where the model cannot be fused."""
    if model.config.intermediate_size % LANES or not all(is_free(p) for p in model.projections.values()):
        return None
    kind = native_kind(model.dtype)
    layers = [layer_parts(kind, layer, window) for layer, window in zip(model.layers, attention.windows, strict=True)]
    stack = kind.FusedStack(
        machine=machine,
        attention=attention.native,
        layers=layers,
        final_norm=model.final_norm,
        head=packed_of(model.lm_head),
        cos=model.rotary.cos,
        sin=model.rotary.sin,
        eps=model.config.norm_eps,
        scale=model.scale,
    )
    return FusedPass(model, stack)


def is_free(projection: protocols.Projection) -> bool:
    """Is it this kernel set's alone, with nothing added?"""
    packed = projection.packed
    return not projection.deltas and isinstance(packed, PackedLinear) and not packed.missing


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
