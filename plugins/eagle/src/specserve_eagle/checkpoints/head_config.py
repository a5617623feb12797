"""The numbers of a draft head, by one name each. Knows nothing about files."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from specserve.api.models import ExpertsConfig, ModelConfig, RopeConfig
from specserve_eagle.checkpoints.layout import HeadKind, Rotation, TargetState
from specserve_eagle.latent.config import LatentConfig


class MaskConfig(msgspec.Struct, frozen=True):
    """Of a P-EAGLE head, which proposes all tokens in one pass."""

    token: int
    """The token of every row but the last committed one's."""
    num_tokens: int
    """Draft tokens that it was trained for, as far as config.json says."""


class HeadConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A draft head's numbers. Letters of the shapes: H hidden_size, V vocab_size, D draft_vocab_size."""

    kind: HeadKind
    family: str
    """Whose tensors of a layer with experts have the names of the head's."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    rope: RopeConfig
    max_position_embeddings: int
    vocab_size: int
    """The target's."""
    draft_vocab_size: int
    """vocab_size where the head proposes every token."""
    target_hidden_size: int
    hidden_layers: tuple[int, ...]
    """The target's hidden states that the head reads: 0 is the embedding, n the output of layer n - 1. EAGLE-1/2 and
    MTP read the last one; see `reads`."""
    reads: TargetState = "normed"
    rotation: Rotation = "halves"
    norm_before_residual: bool
    """EAGLE-3: the residual of layer 0 is the hidden state behind hidden_norm, not before it."""
    qkv_bias: bool
    o_bias: bool
    mlp_bias: bool
    qk_norm: bool
    fc_bias: bool
    embedding_first: bool
    """`fc` reads [embedding ; hidden state]; otherwise the hidden state comes first."""
    dtype: str
    wide_norms: bool = False
    norm_offset: float = 0.0
    attention_gate: Literal["number"] | None = None
    experts: ExpertsConfig | None = None
    """As in `specserve.api.models.ModelConfig`."""
    target_norms: Literal["each", "all"] | None = None
    """Before `fc`: a norm of each of the target's hidden states, or one of all of them together."""
    norm_output: bool = False
    """EAGLE-3.1: the own hidden state is fed back behind the final norm."""
    latent: LatentConfig | None = None
    """Multi-head latent attention."""
    masks: MaskConfig | None = None
    """None: a pass for each draft token."""
    quantization: dict[str, Any] | None = None
    """How weights are stored where they are quantised: `quantization_config` of config.json."""

    @property
    def rotary_dim(self) -> int:
        """How many of a head's dimensions are rotated."""
        return int(self.head_dim * self.rope.partial_rotary_factor)

    @property
    def feeds_back_norm(self) -> bool:
        """The head's own hidden state is fed back behind its final norm, as the target's first one is.

        True for MTP that reads the target's so, as in vLLM and SGLang. EAGLE-3 feeds back the state before the norm,
        unless `norm_output`; EAGLE-1/2 have no norm.
        """
        return (self.kind == "mtp" and self.reads == "normed") or self.norm_output


def decoder_config(config: HeadConfig) -> ModelConfig:
    """The head's layers as a model's numbers."""
    return ModelConfig(
        family="llama",
        vocab_size=config.draft_vocab_size,
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        num_layers=config.num_layers,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        norm_eps=config.norm_eps,
        max_position_embeddings=config.max_position_embeddings,
        qkv_bias=config.qkv_bias,
        o_bias=config.o_bias,
        mlp_bias=config.mlp_bias,
        qk_norm=config.qk_norm,
        tied=False,
        dtype=config.dtype,
        rope=config.rope,
        sliding_windows=(None,) * config.num_layers,
        wide_norms=config.wide_norms,
        norm_offset=config.norm_offset,
        attention_gate=config.attention_gate,
        experts=config.experts,
    )
