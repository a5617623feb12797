"""Granite 3 and 4, dense, and Granite 3 with experts, and a shared one where the file has its width."""

from __future__ import annotations

from typing import Any

from specserve_gguf.architectures.architecture import Architecture

MULTIPLIERS = {
    "embedding_multiplier": "embedding_scale",
    "attention_multiplier": "attention.scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
"""Keys of config.json, and those of the file."""
SHARED_WIDTH = "expert_shared_feed_forward_length"


class Granite(Architecture):
    name = "granite"
    model_type = "granite"
    model_class = "GraniteForCausalLM"
    pairs_are_neighbours = True

    def own_config(self) -> dict[str, Any]:
        found = {ours: self.keys.number(theirs, 1.0) for ours, theirs in MULTIPLIERS.items()}
        if self.keys.value("attention.scale") is None:
            found["attention_multiplier"] = self.head_dim**-0.5
        return found


class GraniteMoe(Granite):
    name = "granitemoe"
    model_type = "granitemoe"
    model_class = "GraniteMoeForCausalLM"

    def own_config(self) -> dict[str, Any]:
        found = super().own_config() | self.experts_config()
        if self.keys.value(SHARED_WIDTH) is None:
            return found
        shared = {"architectures": ["GraniteMoeSharedForCausalLM"], "model_type": "granitemoeshared"}
        return found | shared | {"shared_intermediate_size": self.keys.whole(SHARED_WIDTH)}
