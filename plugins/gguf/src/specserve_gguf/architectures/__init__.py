"""The architectures of files that are read, and how a model's is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve_gguf.architectures.gemma import Gemma2, Gemma3
from specserve_gguf.architectures.gemma4 import Gemma4
from specserve_gguf.architectures.glm4moe import Glm4Moe
from specserve_gguf.architectures.gpt_oss import GptOss
from specserve_gguf.architectures.granite import Granite, GraniteMoe
from specserve_gguf.architectures.lfm2 import Lfm2, Lfm2Moe
from specserve_gguf.architectures.llama import Llama
from specserve_gguf.architectures.mistral3 import Mistral3
from specserve_gguf.architectures.olmo import Olmo2, Olmoe
from specserve_gguf.architectures.phi3 import Phi3
from specserve_gguf.architectures.qwen import Qwen2, Qwen2Moe, Qwen3, Qwen3Moe
from specserve_gguf.architectures.qwen35 import Qwen35, Qwen35Moe
from specserve_gguf.architectures.smollm3 import SmolLM3

if TYPE_CHECKING:
    from specserve_gguf.architectures.architecture import Architecture
    from specserve_gguf.model_file import ModelFile

READ: tuple[type[Architecture], ...] = (
    Llama, Mistral3, Qwen2, Qwen3, Qwen3Moe, Gemma2, Gemma3, Phi3, Granite, GraniteMoe, SmolLM3, Olmo2, Olmoe, GptOss,
    Lfm2, Lfm2Moe, Qwen2Moe, Qwen35, Qwen35Moe, Gemma4, Glm4Moe,
)  # fmt: skip
KIND = "general.type"


def architecture_of(file: ModelFile) -> Architecture:
    """ModelError where it is none that is read."""
    kind, name = file.metadata.get(KIND, "model"), file.metadata.get("general.architecture")
    if kind != "model":
        raise ModelError(f"{file.file} holds no model: its {KIND} is {kind!r}. Pass the file of a model.")
    for each in READ:
        if each.name == name:
            return each(file)
    raise ModelError(
        f"{file.file}: architecture {name!r} is not read from GGUF files; those that are: "
        f"{', '.join(each.name for each in READ)}. Use the model's own files in Hugging Face format."
    )
