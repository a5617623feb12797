"""The tensors that a decoder reads, by their names in Hugging Face's Llama: their shapes, and the norms of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols.part import LinearMaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.models.config import ModelConfig, NormPlaces

MLP_NORM = "pre_feedforward_layernorm"
NORMS: dict[NormPlaces, dict[str, str]] = {
    "before": {"input_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
    "around": {
        "input_norm": "input_layernorm",
        "attention_output_norm": "post_attention_layernorm",
        "mlp_norm": MLP_NORM,
        "mlp_output_norm": "post_feedforward_layernorm",
    },
    "after": {
        "attention_output_norm": "post_attention_layernorm",
        "mlp_output_norm": "post_feedforward_layernorm",
    },
}
"""The checkpoint's names of the norms of a `DecoderLayer`."""

BLOCKS = ("self_attn", "mlp")
"""Of a Llama's layer. Linear maps of other blocks have the names of the checkpoint."""

GATE = "self_attn.g_proj"
"""See `ModelConfig.attention_gate`."""
SHARED_EXPERT, SHARED_GATE = "shared_expert", "shared_expert_gate"
"""Of a layer's `mlp`: see `ExpertsConfig.shared_size` and `shared_gate`."""
TOKEN_TABLE, TOKEN_PROJECTION, TOKEN_NORM = (
    f"model.{name}" for name in ("embed_tokens_per_layer", "per_layer_model_projection", "per_layer_projection_norm")
)
GIVEN_GATE, GIVEN_OUTPUT, GIVEN_NORM = "per_layer_input_gate", "per_layer_projection", "post_per_layer_input_norm"
"""Of the model and of a layer: see `ModelConfig.token_inputs`."""
LAYER_SCALE = "layer_scalar"
"""Of a layer, a tensor of one number: see `ModelConfig.layer_scales`."""
ROUTER_SCALE, EXPERT_SCALES = "router.scale", "router.per_expert_scale"
BOTH_NORMS = ("post_feedforward_layernorm_1", "pre_feedforward_layernorm_2", "post_feedforward_layernorm_2")
"""Of a layer with experts beside an MLP: what the MLP gives, and what the experts read and give."""
CHOICE_BIAS = "mlp.choice.bias"
"""Of a layer with experts: see `ExpertsConfig.choice_bias`."""


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint with its shape."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    experts, norms = expert_maps(config), dict.fromkeys(NORMS[config.norm_places].values(), hidden)
    for layer in range(config.num_layers):
        prefix, mixer = f"model.layers.{layer}.", config.mixer(layer)
        own = attention_maps(config, layer) if mixer is None else mixer.input_maps(hidden) | mixer.output_map(hidden)
        of_attention = head_norms(config, layer) if mixer is None else {}
        of_layer = {name: (size,) for name, size in (norms | of_attention).items()}
        shapes |= {f"{prefix}{name}.weight": shape for name, shape in of_layer.items()}
        if mixer is not None:
            shapes |= {f"{prefix}{name}": shape for name, shape in mixer.tensors(hidden).items()}
        elif config.sinks:
            shapes[f"{prefix}self_attn.sinks"] = (config.num_heads,)
        chosen_from = config.experts if config.experts is not None and config.experts.layers[layer] else None
        plain = mlp_maps("mlp", hidden, config.inner_size(layer), config.mlp_bias)
        of_mlp = plain if chosen_from is None else experts
        if chosen_from is not None and chosen_from.beside_mlp:
            of_mlp = plain | experts
            shapes |= {f"{prefix}{name}.weight": (hidden,) for name in BOTH_NORMS}
            shapes[f"{prefix}{ROUTER_SCALE}"] = (hidden,)
        maps = own | of_mlp
        shapes |= {f"{prefix}{name}.weight": (rows, columns) for name, (rows, columns, _) in maps.items()}
        shapes |= {f"{prefix}{name}.bias": (rows,) for name, (rows, _, biased) in maps.items() if biased}
        if chosen_from is not None and chosen_from.choice_bias:
            shapes[f"{prefix}{CHOICE_BIAS}"] = (chosen_from.count,)
        if chosen_from is not None and chosen_from.expert_scales:
            shapes[f"{prefix}{EXPERT_SCALES}"] = (chosen_from.count,)
        if config.layer_scales:
            shapes[f"{prefix}{LAYER_SCALE}"] = (1,)
        if config.token_inputs is not None:
            size = config.token_inputs.size
            shapes[f"{prefix}{GIVEN_GATE}.weight"] = (size, hidden)
            shapes[f"{prefix}{GIVEN_OUTPUT}.weight"] = (hidden, size)
            shapes[f"{prefix}{GIVEN_NORM}.weight"] = (hidden,)
    if config.token_inputs is not None:
        width = config.num_layers * config.token_inputs.size
        shapes[f"{TOKEN_TABLE}.weight"] = (config.token_inputs.vocab_size, width)
        shapes[f"{TOKEN_PROJECTION}.weight"] = (width, hidden)
        shapes[f"{TOKEN_NORM}.weight"] = (config.token_inputs.size,)
    return shapes


def attention_maps(config: ModelConfig, layer: int) -> LinearMaps:
    """Those of a layer with attention; one that reads another layer's keys and values makes none."""
    hidden, own = config.hidden_size, config.attention(layer)
    q_size, kv_size = config.num_heads * own.head_dim, own.num_kv_heads * own.head_dim
    with_gates = 2 * q_size if config.attention_gate == "number" else q_size
    maps: LinearMaps = {"self_attn.q_proj": (with_gates, hidden, config.qkv_bias)}
    if own.reads is None:
        maps["self_attn.k_proj"] = (kv_size, hidden, config.qkv_bias)
        if own.projects_values:
            maps["self_attn.v_proj"] = (kv_size, hidden, config.qkv_bias)
    maps["self_attn.o_proj"] = (hidden, q_size, config.o_bias)
    if config.num_gates:
        maps[GATE] = (config.num_gates, hidden, False)
    return maps


def head_norms(config: ModelConfig, layer: int) -> dict[str, int]:
    """The norms of queries and keys of a layer with attention, and their sizes."""
    if not config.qk_norm:
        return {}
    own, of_head = config.attention(layer), config.qk_norm_of == "head"
    sizes = {"self_attn.q_norm": own.head_dim * (1 if of_head else config.num_heads)}
    if own.reads is None:
        sizes["self_attn.k_norm"] = own.head_dim * (1 if of_head else own.num_kv_heads)
    return sizes


def mlp_maps(block: str, hidden: int, inner: int, biased: bool) -> LinearMaps:
    return {
        f"{block}.gate_proj": (inner, hidden, biased),
        f"{block}.up_proj": (inner, hidden, biased),
        f"{block}.down_proj": (hidden, inner, biased),
    }


def expert_maps(config: ModelConfig) -> LinearMaps:
    """Those of a layer with experts: its router and every expert's, the shared one's among them."""
    experts, maps = config.experts, LinearMaps()
    if experts is not None:
        maps["mlp.gate"] = (experts.count, config.hidden_size, experts.router_bias)
        for expert in range(experts.count):
            maps |= mlp_maps(f"mlp.experts.{expert}", config.hidden_size, experts.inner_size, config.mlp_bias)
        if experts.shared_size is not None:
            maps |= mlp_maps(f"mlp.{SHARED_EXPERT}", config.hidden_size, experts.shared_size, config.mlp_bias)
        if experts.shared_gate:
            maps[f"mlp.{SHARED_GATE}"] = (1, config.hidden_size, False)
    return maps


def rows_of(paths: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, slice]:
    """Where stacked linear maps have their outputs, by the last part of their paths."""
    slices, start = {}, 0
    for path in paths:
        rows = shapes[f"{path}.weight"][0]
        slices[path.rpartition(".")[2]] = slice(start, start + rows)
        start += rows
    return slices
