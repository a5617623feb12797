"""GLM-4.5 to 4.7 with experts: Zhipu AI, 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ModelError
from specserve.models.experts_config import ExpertsConfig
from specserve.models.family import LayerTraits, ModelFamily, StoredAs, positive
from specserve.models.layers_with_experts import counts, whole_number
from specserve.models.tensor_names import CHOICE_BIAS, SHARED_EXPERT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig

GROUPS = ("n_group", "topk_group")
COUNTS = ("n_routed_experts", "num_local_experts")
"""Keys of the number of experts: transformers takes both for one."""
ADDED_TO_SUM = 1e-20
"""To that of the weights of a token's experts, whatever the file says."""


class Glm4Moe(ModelFamily):
    """Experts in all layers but the first few, chosen by sigmoids of logits in float32, beside shared ones; a half of
    each head is rotated."""

    name = "glm4_moe"
    architectures = ("Glm4MoeForCausalLM",)
    rotates_parts = True
    reads = (
        *(*COUNTS, "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", *GROUPS),
        *("first_k_dense_replace", "norm_topk_prob", "routed_scaling_factor", "use_qk_norm"),
    )
    absent: Mapping[str, object] = {
        "num_key_value_heads": 8,
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-5,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "n_shared_experts": 1,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 1.0,
        "use_qk_norm": False,
    }
    toy: Mapping[str, object] = {
        "partial_rotary_factor": 0.5,
        COUNTS[0]: 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "routed_scaling_factor": 1.5,
        "attention_bias": True,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        return LayerTraits(qkv_bias=raw.get("attention_bias", False), qk_norm=raw["use_qk_norm"])

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        count, chosen = counts(raw, default=128, keys=COUNTS)
        plain = raw["first_k_dense_replace"]
        if type(plain) is not int or plain < 0:
            raise ModelError(f"config.json: first_k_dense_replace must be a number of layers; got {plain!r}.")
        inner = whole_number(raw, "moe_intermediate_size")
        return ExpertsConfig(
            count=count,
            chosen=chosen,
            inner_size=inner,
            layers=tuple(layer >= plain for layer in range(num_layers)),
            scores="sigmoid",
            renormalised=bool(raw["norm_topk_prob"]),
            added_to_sum=ADDED_TO_SUM,
            weight_scale=positive(raw, "routed_scaling_factor"),
            wide_logits=True,
            choice_bias=True,
            shared_size=inner * whole_number(raw, "n_shared_experts"),
        )

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        found: dict[str, StoredAs] = {}
        for layer in range(config.num_layers):
            block, prefix = f"model.layers.{layer}.mlp", f"model.layers.{layer}."
            found[f"{prefix}{CHOICE_BIAS}"] = StoredAs(f"{block}.gate.e_score_correction_bias")
            for name in ("gate_proj", "up_proj", "down_proj"):
                found[f"{block}.{SHARED_EXPERT}.{name}"] = StoredAs(f"{block}.shared_experts.{name}")
        return found

    def check(self, raw: RawJson, where: str) -> None:
        super().check(raw, where)
        for key in GROUPS:
            if raw.get(key, 1) != 1:
                raise ModelError(
                    f"{where}: {key} must be 1, experts in groups are not served by this family; got {raw[key]!r}. "
                    "The plugin transformers computes them: --set transformers.architectures=all."
                )
