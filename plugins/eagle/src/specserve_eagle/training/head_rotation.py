"""How the attention of a new head is rotated: as its target's, where a Llama's can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api.models import RopeConfig, rotary_table

if TYPE_CHECKING:
    from specserve.api.models import DecoderModel, ModelConfig, RotaryTable

OF_PARTS = ("default", "proportional")
"""Types of which a head's config.json says the base alone: other engines rotate whole heads then."""


def head_rope(target: ModelConfig) -> RopeConfig:
    rope = target.rope
    return RopeConfig(rope_theta=rope.rope_theta) if rope.rope_type in OF_PARTS else rope


def head_rotary(target: DecoderModel) -> RotaryTable:
    """Of all positions that the target has."""
    config = msgspec.structs.replace(target.config, rope=head_rope(target.config))
    return rotary_table(config, target.max_model_len).on(target.device)
