"""LFM2 with experts: Liquid AI, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.experts_config import ExpertsConfig
from specserve.models.families.lfm2 import CONV, Lfm2
from specserve.models.family import StoredAs, positive
from specserve.models.kinds_of_layers import FULL, kinds_beside
from specserve.models.layers_with_experts import READS, counts, whole_number
from specserve.models.tensor_names import CHOICE_BIAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig

MATRICES = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
ADDED_TO_SUM = 1e-6
"""To that of the weights of a token's experts, whatever the file says."""


class Lfm2Moe(Lfm2):
    """An LFM2 with experts in all layers but the first few, chosen by sigmoids."""

    name = "lfm2_moe"
    architectures = ("Lfm2MoeForCausalLM",)
    reads = (
        *READS,
        *("conv_L_cache", "conv_bias", "norm_eps", "tie_embedding", "moe_intermediate_size", "norm_topk_prob"),
        *("num_dense_layers", "routed_scaling_factor", "use_expert_bias"),
    )
    absent: Mapping[str, object] = {
        "norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
        "conv_L_cache": 3,
        "conv_bias": False,
        "moe_intermediate_size": 1792,
        "norm_topk_prob": True,
        "num_dense_layers": 2,
        "num_experts_per_tok": 4,
        "routed_scaling_factor": 1.0,
        "use_expert_bias": True,
    }
    toy: Mapping[str, object] = {
        "layer_types": ["conv", "full_attention"],
        "norm_eps": 1e-5,
        "pad_token_id": 0,
        "moe_intermediate_size": 48,
        "num_dense_layers": 1,
        "num_experts": 6,
        "num_experts_per_tok": 2,
    }

    def inner_size(self, raw: RawJson) -> RawJson:
        return {}

    def kinds(self, raw: RawJson, num_layers: int, where: str) -> list[str]:
        return kinds_beside(CONV, (FULL,), raw.get("layer_types"), num_layers, where)

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        count, chosen = counts(raw, default=32)
        plain = raw["num_dense_layers"]
        if type(plain) is not int or plain < 0:
            raise ModelError(f"config.json: num_dense_layers must be a number of layers; got {plain!r}.")
        return ExpertsConfig(
            count=count,
            chosen=chosen,
            inner_size=whole_number(raw, "moe_intermediate_size"),
            layers=tuple(layer >= plain for layer in range(num_layers)),
            scores="sigmoid",
            renormalised=bool(raw["norm_topk_prob"]),
            added_to_sum=ADDED_TO_SUM,
            weight_scale=positive(raw, "routed_scaling_factor"),
            choice_bias=bool(raw["use_expert_bias"]),
        )

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        found, experts = dict(super().stored_as(config)), config.experts
        assert experts is not None, "the family has experts"
        for layer in range(config.num_layers):
            ours, theirs = f"model.layers.{layer}.mlp", f"model.layers.{layer}.feed_forward"
            found[f"{ours}.gate"] = StoredAs(f"{theirs}.gate")
            found[f"model.layers.{layer}.{CHOICE_BIAS}"] = StoredAs(f"{theirs}.expert_bias")
            for expert in range(experts.count):
                for matrix, stored in MATRICES.items():
                    found[f"{ours}.experts.{expert}.{matrix}"] = StoredAs(f"{theirs}.experts.{expert}.{stored}")
        return found
