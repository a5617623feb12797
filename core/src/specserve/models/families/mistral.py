"""Mistral: Jiang et al., 2023."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.family import ModelFamily
from specserve.models.windows import refuse_other_kinds_of_layers, window_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.model_files import RawJson


CONDITIONAL = ("Mistral3ForConditionalGeneration",)


class Mistral(ModelFamily):
    """All layers have the same window."""

    name = "mistral"
    architectures = ("MistralForCausalLM",)
    within = CONDITIONAL
    absent: Mapping[str, object] = {"num_key_value_heads": 8}

    def sliding_windows(self, raw: RawJson, num_layers: int, where: str) -> tuple[int | None, ...]:
        return (window_of(raw, where),) * num_layers

    def check(self, raw: RawJson, where: str) -> None:
        refuse_other_kinds_of_layers(raw, self.name, where)
