"""OLMo 2: OLMo Team, 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.family import LayerTraits, ModelFamily

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class Olmo2(ModelFamily):
    """Norms are behind attention and the MLP, and queries and keys have one over all heads."""

    name = "olmo2"
    architectures = ("Olmo2ForCausalLM",)
    absent: Mapping[str, object] = {"rms_norm_eps": 1e-5}

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(
            qkv_bias=biased,
            o_bias=biased,
            qk_norm=True,
            qk_norm_of="all heads",
            norm_places="after",
            wide_norms=True,
        )
