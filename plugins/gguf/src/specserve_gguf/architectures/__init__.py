"""The architectures of files that are read, a file each, and how a model's is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve_gguf.architectures.llama import Llama

if TYPE_CHECKING:
    from specserve_gguf.architectures.architecture import Architecture
    from specserve_gguf.model_file import ModelFile

READ: tuple[type[Architecture], ...] = (Llama,)


def architecture_of(file: ModelFile) -> Architecture:
    """ModelError where it is none that is read."""
    name = file.metadata.get("general.architecture")
    for each in READ:
        if each.name == name:
            return each(file)
    raise ModelError(
        f"{file.file}: architecture {name!r} is not read from GGUF files; those that are: "
        f"{', '.join(each.name for each in READ)}. Use the model's own files in Hugging Face format."
    )
