"""A decoder layer's weights as the native functions take them. Which layers those can compute is not asked here."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypedDict

from specserve.api.models import DenseMlp, MixtureOfExperts, ShortConv
from specserve_cpu.gated_delta_net import NativeDeltaNet
from specserve_cpu.linear import PackedLinear
from specserve_cpu.short_conv import NativeShortConv

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import Mixer, RecurrentMixer
    from specserve.api.models import DecoderModel, ExpertsConfig, Mlp, Projection
    from specserve_cpu import _native

Convs: TypeAlias = "dict[int, NativeShortConv]"
"""By layer: what some have in place of attention."""


def convs_of(machine: _native.Machine, model: DecoderModel) -> Convs | None:
    """None where a layer has another mixer than these and native gated delta nets."""
    convs: Convs = {}
    for layer, weights in enumerate(model.layers):
        if type(weights.mixer) is ShortConv:
            convs[layer] = NativeShortConv(machine, weights.mixer, model.dtype)
        elif weights.mixer is not None and not is_own_delta(machine, weights.mixer):
            return None
    return convs


def is_own_delta(machine: _native.Machine, mixer: Mixer | RecurrentMixer) -> bool:
    """Is it a gated delta net that these threads compute?"""
    return type(mixer) is NativeDeltaNet and mixer.calls.machine is machine


def native_linear(projection: Projection) -> _native.DtypeModule.PackedLinear:
    assert isinstance(projection.packed, PackedLinear), f"{projection.name} is not fusable"
    return projection.packed.native


class MlpWeights(TypedDict):
    """Arguments of the native `LayerWeights`: a plain MLP, or a router, experts, each as gate_up and down, and what is
    added to their scores for the choice alone."""

    gate_up: _native.DtypeModule.PackedLinear | None
    down: _native.DtypeModule.PackedLinear | None
    router: _native.DtypeModule.PackedLinear | None
    experts: list[tuple[_native.DtypeModule.PackedLinear, _native.DtypeModule.PackedLinear]]
    choice_bias: Tensor | None


def native_mlp(mlp: Mlp) -> MlpWeights:
    if isinstance(mlp, DenseMlp):
        gate_up, down = native_linear(mlp.gate_up_proj), native_linear(mlp.down_proj)
        return {"gate_up": gate_up, "down": down, "router": None, "experts": [], "choice_bias": None}
    assert isinstance(mlp, MixtureOfExperts), "layers with an MLP beside their experts are not fused"
    experts = [(native_linear(each.gate_up_proj), native_linear(each.down_proj)) for each in mlp.experts]
    router = native_linear(mlp.router)
    return {"gate_up": None, "down": None, "router": router, "experts": experts, "choice_bias": mlp.choice_bias}


def is_native_routing(config: ExpertsConfig) -> bool:
    """Sigmoids are rounded, where they are native."""
    return config.scores != "sigmoid" or config.rounded


def routing_numbers(config: ExpertsConfig) -> _native.Routing:
    return (
        *(config.count, config.chosen, config.scores, config.renormalised, config.rounded),
        *(config.added_to_sum, config.weight_scale),
    )


class MixerWeights(TypedDict):
    """Arguments of the native `LayerWeights`: a short convolution and what the cache has of its tokens, or a gated
    delta net and its memory."""

    conv: _native.DtypeModule.ShortConv | None
    kept: Tensor | None
    delta: _native.DtypeModule.GatedDeltaNet | None
    states: Tensor | None
    trails: Tensor | None
    updates: Tensor | None


def mixer_weights(model: DecoderModel, layer: int, convs: Convs) -> MixerWeights:
    mixer = model.layers[layer].mixer
    conv, kept, delta, states, trails, updates = None, None, None, None, None, None
    if layer in convs:
        conv, kept = convs[layer].native, model.token_states[model.state_layers[layer]]
    elif isinstance(mixer, NativeDeltaNet):
        delta, (states, trails, updates) = mixer.native, model.layer_states[model.recurrent_layers[layer]]
    return {"conv": conv, "kept": kept, "delta": delta, "states": states, "trails": trails, "updates": updates}


def mixer_inputs(model: DecoderModel, layer: int, convs: Convs) -> int:
    """How many numbers of a row attention reads, or what stands in its place."""
    mixer = model.layers[layer].mixer
    if isinstance(mixer, NativeDeltaNet):
        return mixer.trail_width + mixer.out_features
    if layer in convs:
        return 3 * convs[layer].out_features
    return (model.num_heads + 2 * model.num_kv_heads) * model.head_dim


def layer_weights(
    module: type[_native.DtypeModule], model: DecoderModel, index: int, convs: Convs
) -> _native.DtypeModule.LayerWeights:
    layer, rotary = model.layers[index], model.layer_rotaries[index]
    return module.LayerWeights(
        input_norm=layer.input_norm,
        aux_norm=layer.aux_norm,
        qkv=native_linear(layer.qkv_proj),
        q_norm=layer.q_norm,
        k_norm=layer.k_norm,
        gate=None if layer.gate_proj is None else native_linear(layer.gate_proj),
        gates_in_qkv=layer.mixer is None and model.config.attention_gate == "number",
        o=native_linear(layer.o_proj),
        attention_output_norm=layer.attention_output_norm,
        mlp_norm=layer.mlp_norm,
        **native_mlp(layer.mlp),
        mlp_output_norm=layer.mlp_output_norm,
        cos=None if rotary is None else rotary.cos,
        sin=None if rotary is None else rotary.sin,
        **mixer_weights(model, index, convs),
    )
