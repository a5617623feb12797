"""gpt-oss: experts with biases, attention with sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_gguf.parts import Part


class GptOss(Architecture):
    name = "gpt-oss"
    model_type = "gpt_oss"
    model_class = "GptOssForCausalLM"
    norms: Mapping[str, str] = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}

    def own_config(self) -> dict[str, Any]:
        return {"sliding_window": self.keys.whole("attention.sliding_window"), **self.experts_config()}

    def inner_size(self) -> int:
        return self.keys.whole("expert_feed_forward_length")

    def rotation(self) -> dict[str, Any]:
        """Its YaRN does not round where the ramp begins and ends, which files do not say."""
        found = super().rotation()
        return found | {"truncate": False} if found["rope_type"] == "yarn" else found

    def parts_of(self, tensor: str) -> Iterator[tuple[str, Part]]:
        for name, part in super().parts_of(tensor):
            yield name.replace(".attn_sinks.weight", ".self_attn.sinks"), part
