"""The numbers of a decoder, under one set of names. Knows no file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from specserve.models.experts_config import ExpertsConfig
from specserve.models.layer_attention import LayerAttention, TokenInputs
from specserve.models.mixer import MixerConfig
from specserve.models.rope_config import RopeConfig

if TYPE_CHECKING:
    from specserve.kv.head_shape import HeadShape


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling values that the model's authors recommend; None where they recommend none."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


NormPlaces = Literal["before", "around", "after"]
"""Where a layer's norms are: before attention and before the MLP, behind them, or both."""
Activation = Literal["silu", "gelu_tanh", "clamped_swiglu"]
"""What the gate of an MLP goes through; `gelu_tanh` is GELU by its tanh approximation."""


GateOf = Literal["head", "number"]


class SwigluClamp(msgspec.Struct, frozen=True, kw_only=True):
    """Of `clamped_swiglu` (OpenAI, 2025): a gate g and an up u give g / (1 + e^-(gain g)) (u + 1), with g at most
    `limit` and u within it on both sides."""

    gain: float = 1.702
    limit: float = 7.0


class Multipliers(msgspec.Struct, frozen=True, kw_only=True):
    """Constants of the arithmetic; in a Llama they change nothing."""

    embedding: float = 1.0
    """Of every embedding; it is rounded to the model's dtype first."""
    attention: float | None = None
    """Of the scores; None: head_dim ** -0.5."""
    residual: float = 1.0
    """Of what attention and the MLP add."""
    logits_divisor: float = 1.0
    logit_cap: float | None = None
    """Logits l become cap * tanh(l / cap)."""
    score_cap: float | None = None
    """Scores of attention s become cap * tanh(s / cap)."""


class QueryScale(msgspec.Struct, frozen=True, kw_only=True):
    """Rotated queries are multiplied by 1 + beta * log(1 + floor(position / length))."""

    beta: float
    length: int


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder's numbers."""

    family: str
    """The name of its `specserve.models.family.ModelFamily`."""
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    max_position_embeddings: int
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    tied: bool
    """The output head is the embedding; the checkpoint has no lm_head."""
    dtype: str
    """What the checkpoint says its weights are; float32 when it is silent."""
    rope: RopeConfig
    """Of the layers that see every key."""
    layer_ropes: tuple[RopeConfig | None, ...] = ()
    """Per layer, None for no rotation; empty where all layers have `rope`."""
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""
    norm_places: NormPlaces = "before"
    wide_norms: bool = False
    """Norms are multiplied by their weights in float32 and rounded once. A Llama's are rounded before, too."""
    norm_offset: float = 0.0
    """What is added to the weights of norms as they are stored; only with `wide_norms`."""
    qk_norm_of: Literal["head", "all heads"] = "head"
    activation: Activation = "silu"
    clamp: SwigluClamp = SwigluClamp()
    sinks: bool = False
    """The softmax of attention has one more score for each query head: see `specserve.protocols.AttentionSpec`."""
    attention_gate: GateOf | None = None
    """What attention gives is multiplied by sigmoids of a linear map of the layer's input: one for each head, or for
    each of its numbers. Those of numbers are stored with the queries: of each head the query, then its gates."""
    query_scale: QueryScale | None = None
    layer_attention: tuple[LayerAttention, ...] = ()
    """Per layer; empty where all layers have `num_kv_heads` of `head_dim` and keys and values of their own."""
    inner_sizes: tuple[int, ...] = ()
    """Per layer: the width of its MLP; empty where all have `intermediate_size`."""
    value_norm: bool = False
    """Values are normed, head by head, without a weight."""
    layer_scales: bool = False
    """What a layer gives is multiplied by a number of its own."""
    token_inputs: TokenInputs | None = None
    multipliers: Multipliers = Multipliers()
    experts: ExpertsConfig | None = None
    mixers: tuple[MixerConfig | None, ...] = ()
    """Per layer: what it has in place of attention, None for attention; empty where all layers have that."""
    generation: GenerationDefaults = GenerationDefaults()
    quantization: dict[str, Any] | None = None
    """How weights are stored where they are quantised: `quantization_config` of config.json."""
    is_part: bool = False
    """It is the text part of a model that reads images, too: see `specserve.models.text_part`."""
    own: dict[str, Any] = {}
    """What config.json says of the keys that only this family reads; None for absent ones."""

    unknown_fields: tuple[str, ...] = ()
    """Fields of config.json that are neither used nor known to change nothing."""

    @property
    def beyond_llama(self) -> frozenset[str]:
        """What the layers and the head have that a Llama's have not: see `KernelSet.fuses`."""
        m = self.multipliers
        found = {
            "output norms": self.norm_places != "before",
            "float32 norms": self.wide_norms,
            "norms of all heads": self.qk_norm and self.qk_norm_of == "all heads",
            "rotations by layer": bool(self.layer_ropes),
            self.activation: self.activation != "silu",
            "residual multiplier": m.residual != 1.0,
            "logits divisor": m.logits_divisor != 1.0,
            "logit cap": m.logit_cap is not None,
            "experts": self.experts is not None,
            "experts by sigmoids": self.experts is not None and self.experts.scores == "sigmoid",
            "routers in float32": self.experts is not None and self.experts.wide_logits,
            "shared expert": self.experts is not None and self.experts.shared_size is not None,
            "experts beside an MLP": self.experts is not None and self.experts.beside_mlp,
            "mixers": any(self.mixers),
            "score cap": m.score_cap is not None,
            "sinks": self.sinks,
            "attention gate": self.attention_gate is not None,
            "query scale": self.query_scale is not None,
            "heads by layer": bool(self.layer_attention),
            "widths by layer": bool(self.inner_sizes),
            "value norms": self.value_norm,
            "layer scales": self.layer_scales,
            "token inputs": self.token_inputs is not None,
        }
        return frozenset(name for name, there in found.items() if there)

    @property
    def is_varied(self) -> bool:
        """Whether the layers have what `specserve.models.varied_decoder` alone computes."""
        return bool(self.layer_attention) or self.value_norm or self.layer_scales or self.token_inputs is not None

    def mixer(self, layer: int) -> MixerConfig | None:
        """What the layer has in place of attention."""
        return self.mixers[layer] if self.mixers else None

    def attention(self, layer: int) -> LayerAttention:
        """Of a layer with attention."""
        if self.layer_attention:
            return self.layer_attention[layer]
        return LayerAttention(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)

    def inner_size(self, layer: int) -> int:
        """The width of the layer's MLP."""
        return self.inner_sizes[layer] if self.inner_sizes else self.intermediate_size

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that have keys and values of their own."""
        layers = (layer for layer in range(self.num_layers) if self.mixer(layer) is None)
        return tuple(layer for layer in layers if self.attention(layer).reads is None)

    @property
    def head_shapes(self) -> tuple[HeadShape, ...]:
        """Of each of those; empty where all have the same."""
        return tuple(self.attention(layer).shape for layer in self.attention_layers) if self.layer_attention else ()

    @property
    def token_widths(self) -> tuple[int, ...]:
        """For each layer that keeps something of each token beside keys and values: how many numbers of the model's
        dtype."""
        widths = (mixer.token_width(self.hidden_size) for mixer in self.mixers if mixer is not None)
        return tuple(width for width in widths if width)

    @property
    def recurrent(self) -> tuple[MixerConfig, ...]:
        """Those of its mixers that have a state."""
        return tuple(mixer for mixer in self.mixers if mixer is not None and mixer.state_size(self.hidden_size))

    @property
    def num_gates(self) -> int:
        """Of attention, for one token, from a linear map of their own."""
        return self.num_heads if self.attention_gate == "head" else 0

    @property
    def rotary_dim(self) -> int:
        """How many of a head's dimensions are rotated, by zero in some pairs of `proportional`."""
        of_whole_heads = self.rope.rope_type == "proportional"
        return self.head_dim if of_whole_heads else int(self.head_dim * self.rope.partial_rotary_factor)
