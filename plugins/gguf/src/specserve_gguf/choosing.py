"""Which files a model's name means: a file with its shards, or those of a directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve_gguf.model_file import shards_of

if TYPE_CHECKING:
    from pathlib import Path

BESIDE = ("mmproj", "imatrix")
"""How files begin that llama.cpp's users keep beside a model: parts that read images, and statistics."""


def files_of(path: Path) -> list[Path]:
    """path: a file of the model, or a directory with it alone. Raises ModelError."""
    return files_in(path) if path.is_dir() else shards_of(path)


def files_in(directory: Path) -> list[Path]:
    """The files of the one model in it. ModelError where there are several."""
    found = sorted(file for file in directory.glob("*.gguf") if not file.name.lower().startswith(BESIDE))
    models = sorted({shards_of(file)[0] for file in found})
    if len(models) == 1:
        return shards_of(models[0])
    names = ", ".join(file.name for file in models) or "none"
    raise ModelError(f"{directory} must have the GGUF files of one model; got {names}. Pass one of the files.")
