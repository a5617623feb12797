"""Qwen2: Yang et al., 2024."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.family import LayerTraits, ModelFamily
from specserve.models.windows import by_layer_types, refuse_contradiction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


class Qwen2(ModelFamily):
    """Queries, keys and values have biases, whatever config.json says; some layers may have a window."""

    name = "qwen2"
    architectures = ("Qwen2ForCausalLM",)
    absent: Mapping[str, int] = {"num_key_value_heads": 32}

    def traits(self, raw: RawJson) -> LayerTraits:
        return LayerTraits(qkv_bias=True)

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return by_layer_types(raw, num_layers, where)

    def check(self, raw: RawJson, where: str) -> None:
        refuse_contradiction(raw, where)
