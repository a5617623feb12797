"""How the attention of a new head is rotated: as its target's, where a Llama's can be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api.models import RopeConfig, rotary_table

if TYPE_CHECKING:
    from specserve.api.models import ModelConfig, RotaryTable, ServedModel

OF_PARTS = ("default", "proportional")
"""Types of which a head's config.json says the base alone: other engines rotate whole heads then."""


def head_rope(target: ModelConfig) -> RopeConfig:
    rope = target.rope
    return RopeConfig(rope_theta=rope.rope_theta) if rope.rope_type in OF_PARTS else rope


def head_rotary(config: ModelConfig, target: ServedModel) -> RotaryTable:
    """Of all positions that the target has."""
    rotated = msgspec.structs.replace(config, rope=head_rope(config))
    return rotary_table(rotated, target.max_model_len).on(target.device)
