"""Llama 1 to 3, and models of its kind that llama.cpp converts as such: Mistral's first ones, and Mixtral."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture

if TYPE_CHECKING:
    from specserve_gguf.model_file import ModelFile


class Llama(Architecture):
    name = "llama"
    model_type = "llama"
    model_class = "LlamaForCausalLM"
    pairs_are_neighbours = True

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        if self.num_experts:
            self.model_type, self.model_class = "mixtral", "MixtralForCausalLM"
        elif self.window is not None:
            self.model_type, self.model_class = "mistral", "MistralForCausalLM"

    def own_config(self) -> dict[str, Any]:
        match self.model_type:
            case "mixtral":
                return {"sliding_window": self.window, **self.experts_config()}
            case "mistral":
                return {"sliding_window": self.window}
        return {"attention_bias": self.has("blk.0.attn_q.bias"), "mlp_bias": self.has("blk.0.ffn_gate.bias")}
