"""The numbers of a decoder, under one set of names. Knows no file."""

from __future__ import annotations

from typing import Any

import msgspec

from specserve.models.rope_config import RopeConfig


class GenerationDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling values that the model's authors recommend; None where they recommend none."""

    do_sample: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None


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
    sliding_windows: tuple[int | None, ...]
    """Per layer: how many keys a query sees, itself included; None for all."""
    generation: GenerationDefaults = GenerationDefaults()
    quantization: dict[str, Any] | None = None
    """How weights are stored where they are quantised: `quantization_config` of config.json."""
    own: dict[str, Any] = {}
    """What config.json says of the keys that only this family reads; None for absent ones."""

    unknown_fields: tuple[str, ...] = ()
    """Fields of config.json that are neither used nor known to change nothing."""

    @property
    def rotary_dim(self) -> int:
        """How many of a head's dimensions are rotated."""
        return int(self.head_dim * self.rope.partial_rotary_factor)
