"""The tensors that a decoder reads, by their names in Hugging Face's Llama: their shapes, and the norms of a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols.part import LinearMaps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.models.config import ModelConfig, NormPlaces

NORMS: dict[NormPlaces, dict[str, str]] = {
    "before": {"input_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"},
    "around": {
        "input_norm": "input_layernorm",
        "attention_output_norm": "post_attention_layernorm",
        "mlp_norm": "pre_feedforward_layernorm",
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
CHOICE_BIAS = "mlp.choice.bias"
"""Of a layer with experts: see `ExpertsConfig.choice_bias`."""


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint with its shape."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config.vocab_size, hidden),
        "model.norm.weight": (hidden,),
    }
    if not config.tied:
        shapes["lm_head.weight"] = (config.vocab_size, hidden)
    q_size, kv_size = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    with_gates = 2 * q_size if config.attention_gate == "number" else q_size
    linears: LinearMaps = {
        "self_attn.q_proj": (with_gates, hidden, config.qkv_bias),
        "self_attn.k_proj": (kv_size, hidden, config.qkv_bias),
        "self_attn.v_proj": (kv_size, hidden, config.qkv_bias),
        "self_attn.o_proj": (hidden, q_size, config.o_bias),
    }
    if config.num_gates:
        linears[GATE] = (config.num_gates, hidden, False)
    plain, experts = mlp_maps("mlp", hidden, inner, config.mlp_bias), expert_maps(config)
    norms, of_attention = dict.fromkeys(NORMS[config.norm_places].values(), hidden), dict[str, tuple[int, ...]]()
    if config.qk_norm:
        of_head = config.qk_norm_of == "head"
        of_attention = {
            "self_attn.q_norm": (config.head_dim if of_head else q_size,),
            "self_attn.k_norm": (config.head_dim if of_head else kv_size,),
        }
    for layer in range(config.num_layers):
        prefix, mixer = f"model.layers.{layer}.", config.mixer(layer)
        own = linears if mixer is None else mixer.input_maps(hidden) | mixer.output_map(hidden)
        of_layer = {name: (size,) for name, size in norms.items()} | (of_attention if mixer is None else {})
        shapes |= {f"{prefix}{name}.weight": shape for name, shape in of_layer.items()}
        if mixer is not None:
            shapes |= {f"{prefix}{name}": shape for name, shape in mixer.tensors(hidden).items()}
        elif config.sinks:
            shapes[f"{prefix}self_attn.sinks"] = (config.num_heads,)
        chosen_from = config.experts if config.experts is not None and config.experts.layers[layer] else None
        maps = own | (plain if chosen_from is None else experts)
        shapes |= {f"{prefix}{name}.weight": (rows, columns) for name, (rows, columns, _) in maps.items()}
        shapes |= {f"{prefix}{name}.bias": (rows,) for name, (rows, _, biased) in maps.items() if biased}
        if chosen_from is not None and chosen_from.choice_bias:
            shapes[f"{prefix}{CHOICE_BIAS}"] = (chosen_from.count,)
    return shapes


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
