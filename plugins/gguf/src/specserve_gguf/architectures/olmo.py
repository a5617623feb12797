"""OLMo 2 and 3, which llama.cpp has as one architecture, and OLMoE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve.api import ModelError
from specserve_gguf.architectures.architecture import Architecture

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve_gguf.model_file import ModelFile


class Olmo2(Architecture):
    name = "olmo2"
    model_type = "olmo2"
    model_class = "Olmo2ForCausalLM"
    norms: Mapping[str, str] = {
        "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        if self.window is not None:
            raise ModelError(
                f"{file.file}: OLMo 3, the kind of olmo2 with windows, is not read from GGUF files. Use the model's "
                "own files in Hugging Face format."
            )


class Olmoe(Architecture):
    name = "olmoe"
    model_type = "olmoe"
    model_class = "OlmoeForCausalLM"

    def own_config(self) -> dict[str, Any]:
        normed = {"norm_topk_prob": self.keys.flag("expert_weights_norm", default=False)}
        return {
            "num_experts": self.num_experts,
            "num_experts_per_tok": self.keys.whole("expert_used_count"),
            **normed,
        }
