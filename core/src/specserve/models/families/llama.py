"""Llama: Touvron et al., 2023."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.family import LayerTraits, ModelFamily

if TYPE_CHECKING:
    from specserve.model_files import RawJson


class Llama(ModelFamily):
    name = "llama"
    architectures = ("LlamaForCausalLM",)

    def traits(self, raw: RawJson) -> LayerTraits:
        biased = raw.get("attention_bias", False)
        return LayerTraits(qkv_bias=biased, o_bias=biased, mlp_bias=raw.get("mlp_bias", False))
