"""Gemma 2, and the text part of Gemma 3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture

if TYPE_CHECKING:
    from collections.abc import Mapping

ACTIVATION = "gelu_pytorch_tanh"


class Gemma3(Architecture):
    name = "gemma3"
    model_type = "gemma3_text"
    model_class = "Gemma3ForCausalLM"
    norms: Mapping[str, str] = {
        "attn_norm": "input_layernorm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    }
    norm_offset = 1.0
    theta = 1_000_000.0
    layers_of_other_scale = 62
    """The largest model, which has so many layers, scales queries by their number and not by their size."""

    def own_config(self) -> dict[str, Any]:
        largest = self.num_layers == self.layers_of_other_scale
        query = self.keys.whole("embedding_length") // self.heads if largest else self.head_dim
        return {
            "hidden_activation": ACTIVATION,
            "sliding_window": self.keys.whole("attention.sliding_window"),
            "query_pre_attn_scalar": query,
            "attn_logit_softcapping": self.cap("attn_logit_softcapping"),
            "final_logit_softcapping": self.cap("final_logit_softcapping"),
            **self.kinds_config(),
        }

    def cap(self, name: str) -> float | None:
        return None if self.keys.value(name) is None else self.keys.number(name)

    def kinds_config(self) -> dict[str, Any]:
        """What differs by layer. Layers with a window have a rotation of their own, which is not scaled."""
        rotation = self.rotation()
        theta, kind = rotation.pop("rope_theta"), rotation["rope_type"]
        local = self.keys.number("rope.freq_base_swa", 10_000.0)
        found = {"rope_parameters": None, "rope_theta": theta, "rope_local_base_freq": local}
        scaled = {} if kind == "default" else {"rope_scaling": rotation}
        return found | scaled | self.pattern()

    def pattern(self) -> dict[str, Any]:
        """Which layers have a window; all but every sixth where the file says nothing."""
        found = self.keys.flags_of_layers("attention.sliding_window_pattern", self.num_layers)
        if found is None:
            return {}
        return {"layer_types": ["sliding_attention" if windowed else "full_attention" for windowed in found]}


class Gemma2(Gemma3):
    name = "gemma2"
    model_type = "gemma2"
    model_class = "Gemma2ForCausalLM"
    theta = 10_000.0
    layers_of_other_scale = 46

    def kinds_config(self) -> dict[str, Any]:
        return self.pattern()
