"""Qwen3 with experts: Yang et al., 2025."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.experts_config import ExpertsConfig
from specserve.models.family import LayerTraits, ModelFamily
from specserve.models.layers_with_experts import READS, counts, sparse_layers, whole_number
from specserve.models.windows import window_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class Qwen3Moe(ModelFamily):
    """In most layers, or all, the MLP is a mixture of experts; queries and keys are normed."""

    name = "qwen3_moe"
    architectures = ("Qwen3MoeForCausalLM",)
    default_experts = 128
    absent: Mapping[str, object] = {
        "num_key_value_heads": 4,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "decoder_sparse_step": 1,
    }
    reads: tuple[str, ...] = (
        *READS,
        *("moe_intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers"),
    )
    toy: Mapping[str, object] = {
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "norm_topk_prob": True,
    }

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(qkv_bias=biased, o_bias=biased, qk_norm=True)

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return (window_of(raw, where) if raw.get("use_sliding_window", False) else None,) * num_layers

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        count, chosen = counts(raw, default=self.default_experts)
        return ExpertsConfig(
            count=count,
            chosen=chosen,
            inner_size=whole_number(raw, "moe_intermediate_size"),
            layers=sparse_layers(raw, num_layers),
            renormalised=bool(raw.get("norm_topk_prob", False)),
        )

    def check(self, raw: RawJson, where: str) -> None:
        """All layers have the window that the file gives, or none."""
