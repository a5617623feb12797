"""Mistral Small 3 and Ministral 3, text alone; in Mistral's own order of rows, which is Hugging Face's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specserve_gguf.architectures.architecture import Architecture
from specserve_gguf.architectures.rotation import ORIGINAL

if TYPE_CHECKING:
    from specserve_gguf.model_file import ModelFile

GROWTH = "attention.temperature_scale"


class Mistral3(Architecture):
    name = "mistral3"
    model_type = "mistral"
    model_class = "MistralForCausalLM"

    def __init__(self, file: ModelFile) -> None:
        super().__init__(file)
        if self.keys.value(GROWTH) is not None:
            self.model_type, self.model_class = "ministral3", "Ministral3ForCausalLM"

    def own_config(self) -> dict[str, Any]:
        return {"sliding_window": self.window}

    def rotation(self) -> dict[str, Any]:
        found = super().rotation()
        if self.keys.value(GROWTH) is None:
            return found
        length = self.keys.whole(ORIGINAL)
        return found | {"llama_4_scaling_beta": self.keys.number(GROWTH), "original_max_position_embeddings": length}
