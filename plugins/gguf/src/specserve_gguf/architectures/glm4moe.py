"""GLM 4.5 to 4.7 but 4.7 Flash, whose first layers have no experts, and the block that drafts (MTP), which files have
as one more layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture
from specserve_gguf.keys import MAX_LAYERS
from specserve_gguf.parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_gguf.model_file import ModelFile

NEXTN = "nextn."
BLOCK = {
    "eh_proj": "eh_proj",
    "enorm": "enorm",
    "hnorm": "hnorm",
    "embed_tokens": "embed_tokens",
    "shared_head_head": "shared_head.head",
    "shared_head_norm": "shared_head.norm",
}
"""What the block's layer has beside those of the target."""


class Glm4Moe(Architecture):
    name = "glm4moe"
    model_type = "glm4_moe"
    model_class = "Glm4MoeForCausalLM"
    norms: Mapping[str, str] = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        self.drafting = self.keys.count("nextn_predict_layers", self.num_layers - 1)
        self.num_layers -= self.drafting

    def own_config(self) -> dict[str, Any]:
        self.check_sigmoids()
        self.keys.value("rope.dimension_sections")  # of images: a token of text has the same position in all of them
        return {
            "n_routed_experts": self.num_experts,
            "num_experts_per_tok": self.keys.whole("expert_used_count"),
            "moe_intermediate_size": self.keys.whole("expert_feed_forward_length"),
            "n_shared_experts": self.keys.whole("expert_shared_count", 1),
            "first_k_dense_replace": self.keys.count("leading_dense_block_count", MAX_LAYERS),
            "n_group": self.keys.whole("expert_group_count", 1),
            "topk_group": self.keys.whole("expert_group_used_count", 1),
            "norm_topk_prob": self.keys.flag("expert_weights_norm", default=True),
            "routed_scaling_factor": self.keys.number("expert_weights_scale", 1.0),
            "use_qk_norm": self.some_layer_has("attn_q_norm.weight"),
            "attention_bias": self.some_layer_has("attn_q.bias"),
            "num_nextn_predict_layers": self.drafting or None,
        }

    def rotation(self) -> dict[str, Any]:
        """A part of each head, which is stated as config.json of this family has it."""
        found = super().rotation()
        return {"partial_rotary_factor": 1.0, **found}

    def of_layer(self, inner: str, tensor: str) -> Iterator[tuple[str, Part]]:
        if inner.startswith(NEXTN):
            yield BLOCK.get(inner.removeprefix(NEXTN), inner), Part(tensor)
        elif inner == "exp_probs_b":
            yield "mlp.choice", Part(tensor)
        else:
            yield from super().of_layer(inner, tensor)
