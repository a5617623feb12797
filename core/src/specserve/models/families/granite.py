"""Granite 3 and 4, dense: IBM, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.config import Multipliers
from specserve.models.family import LayerTraits, ModelFamily, positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class Granite(ModelFamily):
    """A Llama with four multipliers."""

    name = "granite"
    architectures = ("GraniteForCausalLM",)
    reads = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
    absent: Mapping[str, object] = dict.fromkeys(reads, 1.0)
    toy: Mapping[str, object] = {
        "embedding_multiplier": 1.5,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.75,
        "logits_scaling": 0.5,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        scales = Multipliers(
            embedding=positive(raw, "embedding_multiplier"),
            attention=positive(raw, "attention_multiplier"),
            residual=positive(raw, "residual_multiplier"),
            logits_divisor=positive(raw, "logits_scaling"),
        )
        return LayerTraits(qkv_bias=biased, o_bias=biased, mlp_bias=raw.get("mlp_bias", False), multipliers=scales)
