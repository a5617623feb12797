"""OLMoE: Muennighoff et al., 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.models.family import LayerTraits, ModelFamily
from specserve.models.layers_with_experts import READS, everywhere

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.experts_config import ExpertsConfig


class Olmoe(ModelFamily):
    """A Llama with experts, and one norm for the queries of all heads and one for the keys."""

    name = "olmoe"
    architectures = ("OlmoeForCausalLM",)
    absent: Mapping[str, object] = {"rms_norm_eps": 1e-5, "num_experts_per_tok": 8}
    reads = (*READS, "norm_topk_prob")
    toy: Mapping[str, object] = {"num_experts": 6, "num_experts_per_tok": 3}

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(qkv_bias=biased, o_bias=biased, qk_norm=True, qk_norm_of="all heads")

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        found = everywhere(raw, num_layers, default=64)
        return msgspec.structs.replace(found, renormalised=bool(raw.get("norm_topk_prob", False)))
