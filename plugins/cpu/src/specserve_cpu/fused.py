"""The decoder's layers as one native call: what lies between two attention calls, and those too.

Has the bits of the pieces called one by one: the same functions in another loop. Declines where a projection has a
delta or a kernel of somebody else's, which must be called in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve_cpu.attention import native_kind

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.batch import Batch
    from specserve.models.decoder import DecoderLayer, DecoderModel
    from specserve_cpu import _native
    from specserve_cpu.attention import CpuPagedAttention, PagedPlan

LANES = 16


class FusedPass:
    """`specserve.protocols.ForwardPass`."""

    def __init__(self, model: DecoderModel, stack: _native.float32.FusedStack) -> None:
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
        head=model.lm_head.packed.native,
        cos=model.rotary.cos,
        sin=model.rotary.sin,
        eps=model.config.norm_eps,
        scale=model.scale,
    )
    return FusedPass(model, stack)


def is_free(projection: Any) -> bool:
    """Is it this kernel set's alone, with nothing added?"""
    packed = projection.packed
    return not projection.has_deltas and hasattr(packed, "native") and not packed.missing


def layer_parts(kind: Any, layer: DecoderLayer, window: int) -> Any:
    return kind.LayerParts(
        input_norm=layer.input_norm,
        qkv=layer.qkv_proj.packed.native,
        q_norm=layer.q_norm,
        k_norm=layer.k_norm,
        o=layer.o_proj.packed.native,
        post_norm=layer.post_attention_norm,
        gate_up=layer.gate_up_proj.packed.native,
        down=layer.down_proj.packed.native,
        window=window,
    )
