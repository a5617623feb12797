"""Granite 3 and 4, dense: IBM, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.config import Multipliers
from specserve.models.families.llama import Llama
from specserve.models.family import LayerTraits, positive

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class Granite(Llama):
    """A Llama with four multipliers."""

    name = "granite"
    architectures = ("GraniteForCausalLM",)
    reads: tuple[str, ...] = ("embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling")
    absent: Mapping[str, object] = dict.fromkeys(reads, 1.0)
    toy: Mapping[str, object] = {
        "embedding_multiplier": 1.5,
        "attention_multiplier": 0.2,
        "residual_multiplier": 0.75,
        "logits_scaling": 0.5,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        scales = Multipliers(
            embedding=positive(raw, "embedding_multiplier"),
            attention=positive(raw, "attention_multiplier"),
            residual=positive(raw, "residual_multiplier"),
            logits_divisor=positive(raw, "logits_scaling"),
        )
        return super().traits(raw)._replace(multipliers=scales)
