"""Qwen3: Yang et al., 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.families.qwen2 import Qwen2
from specserve.models.family import LayerTraits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class Qwen3(Qwen2):
    """Queries and keys are normed; the size of a head does not follow from the others."""

    name = "qwen3"
    architectures = ("Qwen3ForCausalLM",)
    absent: Mapping[str, int] = {"num_key_value_heads": 32, "head_dim": 128}

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(qkv_bias=biased, o_bias=biased, qk_norm=True)
