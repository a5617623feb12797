"""Ministral (2024), Ministral 3 (2025): Mistral AI."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.config import QueryScale
from specserve.models.families.mistral import CONDITIONAL, Mistral
from specserve.models.family import LayerTraits, positive
from specserve.models.kinds_of_layers import kinds, windows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson

BETA, LENGTH = "llama_4_scaling_beta", "original_max_position_embeddings"


class Ministral(Mistral):
    """A Mistral some of whose layers may have no window."""

    name = "ministral"
    architectures = ("MinistralForCausalLM",)
    within = CONDITIONAL
    toy: Mapping[str, object] = {"sliding_window": 40, "layer_types": ["sliding_attention", "full_attention"]}

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        if raw.get("layer_types") is None:
            return super().sliding_windows(raw, num_layers, where)
        return windows(raw, kinds(raw, num_layers, 1, where), where)

    def check(self, raw: RawJson, where: str) -> None:
        """`kinds` and `windows` have checked what the file says of windows."""


class Ministral3(Mistral):
    """A Mistral whose queries grow with their position, beyond the length of pretraining."""

    name = "ministral3"
    architectures = ("Ministral3ForCausalLM",)
    within = CONDITIONAL
    reads = (BETA,)
    absent: Mapping[str, object] = {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "rms_norm_eps": 1e-5,
        "sliding_window": None,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1_000_000.0,
            "factor": 16.0,
            LENGTH: 16384,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale_all_dim": 1.0,
            "mscale": 1.0,
            BETA: 0.1,
        },
    }
    toy: Mapping[str, object] = {
        "max_position_embeddings": 512,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 16.0, LENGTH: 16, BETA: 0.5},
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        rope = raw.get("rope_scaling") or raw["rope_parameters"]
        given: RawJson = rope if isinstance(rope, dict) else {}
        return LayerTraits(query_scale=QueryScale(beta=positive(given, BETA), length=int(positive(given, LENGTH))))
