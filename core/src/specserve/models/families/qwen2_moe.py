"""Qwen1.5 and 2 with experts: Yang et al., 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.models.families.qwen3_moe import Qwen3Moe
from specserve.models.family import LayerTraits
from specserve.models.layers_with_experts import whole_number
from specserve.models.windows import FULL, SLIDING, by_layer_types, refuse_contradiction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.experts_config import ExpertsConfig

SHARED_WIDTH = "shared_expert_intermediate_size"


class Qwen2Moe(Qwen3Moe):
    """A Qwen2 with experts beside a shared one with a gate; every other layer may have a window."""

    name = "qwen2_moe"
    architectures = ("Qwen2MoeForCausalLM",)
    default_experts = 60
    absent: Mapping[str, object] = {
        "num_key_value_heads": 16,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": 1408,
        SHARED_WIDTH: 5632,
        "decoder_sparse_step": 1,
        "qkv_bias": True,
    }
    reads = (*Qwen3Moe.reads, SHARED_WIDTH, "qkv_bias")
    toy: Mapping[str, object] = {**Qwen3Moe.toy, SHARED_WIDTH: 56}

    def traits(self, raw: RawJson) -> LayerTraits:
        return LayerTraits(qkv_bias=raw["qkv_bias"])

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        if raw.get("layer_types") is None:
            end = raw.get("max_window_layers", 28)
            kinds = [FULL[0] if layer % 2 or layer >= end else SLIDING for layer in range(num_layers)]
            raw = raw | {"layer_types": kinds}
        return by_layer_types(raw, num_layers, where)

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        found = super().experts(raw, num_layers)
        return msgspec.structs.replace(found, shared_size=whole_number(raw, SHARED_WIDTH), shared_gate=True)

    def check(self, raw: RawJson, where: str) -> None:
        refuse_contradiction(raw, where)
