"""Qwen 2, 2.5 and 3, and those with experts."""

from __future__ import annotations

from typing import Any

from specserve_gguf.architectures.architecture import Architecture


class Qwen2(Architecture):
    name = "qwen2"
    model_type = "qwen2"
    model_class = "Qwen2ForCausalLM"


class Qwen3(Architecture):
    name = "qwen3"
    model_type = "qwen3"
    model_class = "Qwen3ForCausalLM"


class Qwen3Moe(Architecture):
    name = "qwen3moe"
    model_type = "qwen3_moe"
    model_class = "Qwen3MoeForCausalLM"
    weights_sum_to_one = True
    """Of a token's experts, in all such models of llama.cpp where the file says nothing."""

    def own_config(self) -> dict[str, Any]:
        return {
            "num_experts": self.num_experts,
            "num_experts_per_tok": self.keys.whole("expert_used_count"),
            "moe_intermediate_size": self.keys.whole("expert_feed_forward_length"),
            "norm_topk_prob": self.keys.flag("expert_weights_norm", default=self.weights_sum_to_one),
        }


class Qwen2Moe(Qwen3Moe):
    name = "qwen2moe"
    model_type = "qwen2_moe"
    model_class = "Qwen2MoeForCausalLM"
    weights_sum_to_one = False

    def own_config(self) -> dict[str, Any]:
        shared = self.keys.whole("expert_shared_feed_forward_length", self.inner_size())
        return super().own_config() | {"shared_expert_intermediate_size": shared}
