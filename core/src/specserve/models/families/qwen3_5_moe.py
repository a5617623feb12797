"""Qwen3.5 and 3.6 with experts, text: Qwen Team, 2026."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.experts_config import ExpertsConfig
from specserve.models.families.qwen3_5 import Qwen35
from specserve.models.family import StoredAs
from specserve.models.layers_with_experts import READS, counts, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson
    from specserve.models.config import ModelConfig

WIDTH, SHARED_WIDTH = "moe_intermediate_size", "shared_expert_intermediate_size"


class Qwen35Moe(Qwen35):
    """A Qwen3.5 with experts in all layers, beside a shared one with a gate. Its files have a layer's experts as two
    stacks of matrices, or each by its own name."""

    name = "qwen3_5_moe_text"
    architectures = ("Qwen3_5MoeForCausalLM",)
    within = ("Qwen3_5MoeForConditionalGeneration",)
    only: Mapping[str, object] = {
        **Qwen35.only,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }
    reads = (*Qwen35.reads, *READS, WIDTH, SHARED_WIDTH, "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")
    absent: Mapping[str, object] = {
        **Qwen35.absent,
        "num_key_value_heads": 2,
        "num_experts_per_tok": 8,
        WIDTH: 512,
        SHARED_WIDTH: 512,
    }
    toy: Mapping[str, object] = {
        **Qwen35.toy,
        "num_experts": 6,
        "num_experts_per_tok": 2,
        WIDTH: 48,
        SHARED_WIDTH: 56,
    }

    def renamed(self, raw: RawJson) -> RawJson:
        """No layer has an MLP of another width."""
        return raw | {"intermediate_size": whole_number(raw, WIDTH)}

    def experts(self, raw: RawJson, num_layers: int) -> ExpertsConfig:
        count, chosen = counts(raw, default=256)
        return ExpertsConfig(
            count=count,
            chosen=chosen,
            inner_size=whole_number(raw, WIDTH),
            layers=(True,) * num_layers,
            renormalised=True,
            shared_size=whole_number(raw, SHARED_WIDTH),
            shared_gate=True,
        )

    def stored_as(self, config: ModelConfig) -> Mapping[str, StoredAs]:
        assert config.experts is not None, "every layer has experts"
        inner, found = config.experts.inner_size, {}
        for layer in range(config.num_layers):
            block = f"model.layers.{layer}.mlp.experts"
            for expert in range(config.experts.count):
                ours, gate = f"{block}.{expert}", StoredAs(f"{block}.gate_up_proj", 0, inner, of_stack=expert)
                found[f"{ours}.gate_proj.weight"] = gate
                found[f"{ours}.up_proj.weight"] = gate._replace(first_row=inner)
                found[f"{ours}.down_proj.weight"] = StoredAs(f"{block}.down_proj", of_stack=expert)
        return found
