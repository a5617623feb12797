"""Llama 1 to 3, and models of its kind that llama.cpp converts as such, like Mistral's first ones."""

from __future__ import annotations

from typing import Any

from specserve_gguf.architectures.architecture import Architecture


class Llama(Architecture):
    name = "llama"
    model_type = "llama"
    model_class = "LlamaForCausalLM"
    pairs_are_neighbours = True

    def own_config(self) -> dict[str, Any]:
        return {"attention_bias": self.has("blk.0.attn_q.bias"), "mlp_bias": self.has("blk.0.ffn_gate.bias")}
