"""SmolLM3: every fourth layer rotates nothing, which files do not say."""

from __future__ import annotations

from typing import Any

from specserve_gguf.architectures.architecture import Architecture


class SmolLM3(Architecture):
    name = "smollm3"
    model_type = "smollm3"
    model_class = "SmolLM3ForCausalLM"
    pairs_are_neighbours = True

    def own_config(self) -> dict[str, Any]:
        return {"no_rope_layer_interval": 4, "attention_bias": self.has("blk.0.attn_q.bias")}
