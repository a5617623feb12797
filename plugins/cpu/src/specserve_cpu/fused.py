"""The decoder's layers in native calls: one for all layers with cpu_paged, two per layer around another backend.

The same native functions as in the layers called piece by piece, so the same bits. LoRA adapters are included, gates of
attention, and short convolutions and gated delta nets in place of it. Declines if a projection has another kind of
delta or another plugin's kernel, which must be called in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from specserve.api import ForwardPass
from specserve.api.batch import HiddenStates, PrecedingTokens, state_runs
from specserve.api.models import NO_TAPS, DenseMlp, LowRankDelta, MixtureOfExperts, copy_tap
from specserve_cpu.adapters import native_segments
from specserve_cpu.attention import CpuPagedAttention, native_module
from specserve_cpu.dlpack import dlpack
from specserve_cpu.gated_delta_net import NO_RUNS, NativeDeltaNet, list_of
from specserve_cpu.layer_weights import (
    convs_of,
    is_native_routing,
    layer_weights,
    mixer_inputs,
    native_linear,
    routing_numbers,
)
from specserve_cpu.linear import PackedLinear, padding_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from specserve.api import AdaptableProjection, AttentionBackend
    from specserve.api.batch import Batch
    from specserve.api.models import DecoderLayer, DecoderModel, Projection
    from specserve_cpu import _native
    from specserve_cpu.attention import PagedPlan
    from specserve_cpu.layer_weights import Convs

LANES = 16
FUSES = frozenset(
    {
        *("output norms", "float32 norms", "norms of all heads", "rotations by layer", "gelu_tanh"),
        *("residual multiplier", "logits divisor", "logit cap", "experts", "clamped_swiglu"),
        *("score cap", "sinks", "mixers", "attention gate", "experts by sigmoids"),
    }
)
"""All that layers may have; where they differ from Llama's they take the way of batches with adapters, but for gates,
short convolutions and gated delta nets. Other mixers are declined."""


class NativePass(ForwardPass):
    """What both kinds of `specserve.api.ForwardPass` share: the embedding and the output head."""

    def __init__(self, model: DecoderModel, stack: _native.DtypeModule.DecoderStack) -> None:
        self.model, self.stack = model, stack

    def embed(self, batch: Batch) -> Tensor:
        return self.model.embed(batch.input_ids)

    def logits(self, x: Tensor, batch: Batch) -> Tensor:
        out = torch.empty((batch.num_scored, self.model.vocab_size), dtype=torch.float32)
        if batch.num_scored:
            rows = batch.scored_rows
            self.stack.logits(dlpack(x), None if rows is None else dlpack(rows), dlpack(out))
        return self.model.finished(out)


class FusedPass(NativePass):
    """All layers in one call, with cpu_paged."""

    def layers(
        self, x: Tensor, batch: Batch, plan: PagedPlan, taps: Mapping[int, Tensor] = NO_TAPS, aux: Tensor | None = None
    ) -> Tensor:
        self.stack.forward(
            dlpack(x),
            dlpack(batch.positions),
            dlpack(batch.slots),
            plan.native,
            native_segments(batch.lora),
            None if aux is None else dlpack(aux),
            native_taps(taps),
            list_of(state_runs(batch)) if self.model.recurrent else NO_RUNS,
        )
        return x


def native_taps(taps: Mapping[int, Tensor]) -> list[tuple[int, Any, int, int]]:
    """Where the layers' inputs are copied to: a tensor, and the row and the column in it."""
    if isinstance(taps, HiddenStates):  # without a view for each layer
        width = taps.width
        return [(layer, dlpack(taps.source), taps.begin, i * width) for i, layer in enumerate(taps.layers)]
    return [(layer, dlpack(out), 0, 0) for layer, out in taps.items()]


class SplitPass(NativePass):
    """Two calls per layer, before and after another attention backend."""

    def __init__(
        self,
        model: DecoderModel,
        stack: _native.DtypeModule.DecoderStack,
        attention: AttentionBackend,
        convs: Convs,
    ) -> None:
        super().__init__(model, stack)
        self.attention = attention
        self.head_counts = (model.num_heads, model.num_kv_heads, model.num_kv_heads)
        self.convs = convs
        self.widths = [mixer_inputs(model, layer, convs) for layer in range(model.num_layers)]

    def layers(
        self, x: Tensor, batch: Batch, plan: Any, taps: Mapping[int, Tensor] = NO_TAPS, aux: Tensor | None = None
    ) -> Tensor:
        adapters, model = native_segments(batch.lora), self.model
        tokens = None if model.reach is None else PrecedingTokens.of(batch, model.reach, x.device)
        runs = state_runs(batch) if model.recurrent else []
        for layer in range(model.num_layers):
            copy_tap(taps, layer, x)
            aux_rows = None if aux is None else dlpack(aux)
            conv, mixer = self.convs.get(layer), model.layers[layer].mixer
            rows, gates = x.new_empty((len(x), self.widths[layer])), self.empty_gates(layer, x)
            positions, of_gates = dlpack(batch.positions), None if gates is None else dlpack(gates)
            self.stack.pre_attention(layer, dlpack(x), positions, adapters, aux_rows, dlpack(rows), of_gates)
            if conv is not None and tokens is not None:
                mixed = self.attention.mix(conv, rows, model.token_states[model.state_layers[layer]], tokens)
            elif isinstance(mixer, NativeDeltaNet):
                mixed = self.attention.mix_states(mixer, rows, model.layer_states[model.recurrent_layers[layer]], runs)
            else:
                q, k, v = rows.view(len(x), -1, model.head_dim).split_with_sizes(self.head_counts, 1)
                mixed = self.attention.forward(model.cache_layers[layer], q, k, v, plan).flatten(1)
            of_gates = None if gates is None else dlpack(gates)
            self.stack.post_attention(layer, dlpack(x), dlpack(mixed.contiguous()), of_gates, adapters)
        copy_tap(taps, model.num_layers, x)
        return x

    def empty_gates(self, layer: int, x: Tensor) -> Tensor | None:
        """Memory for the gates of attention of the rows of x; None where the layer has none."""
        model = self.model
        if model.layers[layer].mixer is not None or model.config.attention_gate is None:
            return None
        count = model.num_heads if model.config.attention_gate == "head" else model.num_heads * model.head_dim
        return x.new_empty((len(x), count))


def fuse(machine: _native.Machine, model: DecoderModel, attention: AttentionBackend) -> FusedPass | SplitPass | None:
    """None where the model cannot be fused."""
    if not all(is_fusable(p) for p in model.projections.values()) or not all(map(has_whole_panels, model.layers)):
        return None
    convs, experts = convs_of(machine, model), model.config.experts
    if convs is None or (experts is not None and not is_native_routing(experts)):
        return None
    module = native_module(model.dtype)
    own = attention if isinstance(attention, CpuPagedAttention) else None
    stack = module.DecoderStack(
        machine=machine,
        attention=None if own is None else own.native,
        heads=(model.num_heads, model.num_kv_heads, model.head_dim),
        layers=[layer_weights(module, model, layer, convs) for layer in range(model.num_layers)],
        final_norm=model.final_norm,
        lm_head=native_linear(model.lm_head),
        positions=model.max_model_len,
        eps=model.config.norm_eps,
        scale=model.scale,
        activation=(model.config.activation, model.config.clamp.gain, model.config.clamp.limit),
        residual=model.config.multipliers.residual,
        routing=None if experts is None else routing_numbers(experts),
    )
    return SplitPass(model, stack, attention, convs) if own is None else FusedPass(model, stack)


def has_whole_panels(layer: DecoderLayer) -> bool:
    """Are the MLP's inner sizes such that gates and ups lie in panels of their own? Of experts: are all weights kept in
    one form, and is nothing done with the sum?"""
    if isinstance(layer.mlp, DenseMlp):
        return layer.mlp.down_proj.in_features % LANES == 0
    if not isinstance(layer.mlp, MixtureOfExperts) or layer.mlp.combine is not None:
        return False
    experts = layer.mlp.experts
    forms = [{form_of(mlp.gate_up_proj) for mlp in experts}, {form_of(mlp.down_proj) for mlp in experts}]
    return experts[0].down_proj.in_features % LANES == 0 and all(len(each) == 1 for each in forms)


def form_of(projection: Projection) -> object:
    assert isinstance(projection.packed, PackedLinear), f"{projection.name} is not fusable"
    return projection.packed.form


def is_fusable(projection: AdaptableProjection) -> bool:
    """Is its kernel ours, without padding, are its deltas all LoRA, and is nothing done with its output?"""
    only_lora = all(isinstance(delta, LowRankDelta) for delta in projection.deltas)
    return only_lora and projection.whole.combine is None and is_packed(projection)


def is_packed(projection: AdaptableProjection) -> bool:
    """Is its kernel ours, and would neither it nor an adapter's parts in the model's dtype have padding?"""
    packed = projection.packed
    return isinstance(packed, PackedLinear) and not padding_of(packed.in_features, packed.dtype)
