"""Another library that computes whole models: which it serves, and how it loads one.

Plugins answer the hook `model_libraries` with such objects. Knows nothing of any library.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ModelError
from specserve.model_files import read_json
from specserve.models.directory_kinds import refuse_other_kinds
from specserve.models.text_part import flat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import torch

    from specserve.model_files import RawJson
    from specserve.models.checkpoint import Checkpoint
    from specserve.models.family import ModelFamily
    from specserve.models.served_model import ServedModel
    from specserve.protocols import KernelSet


class LoadRequest(NamedTuple):
    """A model to load. `max_model_len`: the context length that was asked for; None: the model's own.
    `open_checkpoint`: gives the same tensors in every call; ModelError where there are none."""

    path: Path
    raw: RawJson
    """config.json."""
    open_checkpoint: Callable[[], Checkpoint]
    kernels: KernelSet
    dtype: torch.dtype
    device: torch.device
    max_model_len: int | None


class ModelLibrary(ABC):
    """Where two libraries serve a model, the plugin that is enabled first does."""

    name: str

    @abstractmethod
    def serves(self, raw: RawJson, *, native: bool) -> bool:
        """raw: config.json; native: whether one of the families would serve the model. Loads nothing heavy."""

    @abstractmethod
    def dtype(self, raw: RawJson, where: str) -> str:
        """float32, bfloat16 or float16: what the weights are, for `--dtype auto`. Raises ModelError."""

    @abstractmethod
    def load(self, request: LoadRequest) -> ServedModel:
        """Everything that can be wrong is found before weights are allocated. Raises ModelError."""


class LibraryModel(NamedTuple):
    """raw: config.json of a model that the library serves."""

    library: ModelLibrary
    raw: RawJson


def library_of(path: Path, families: Sequence[ModelFamily], libraries: Sequence[ModelLibrary]) -> LibraryModel | None:
    """Who serves the model in directory `path` in place of the families; None: they do."""
    if not libraries:
        return None
    refuse_other_kinds(path, str(path))
    raw = read_json(path / "config.json")
    native = is_native(raw, families)
    return next((LibraryModel(each, raw) for each in libraries if each.serves(raw, native=native)), None)


def is_native(raw: RawJson, families: Sequence[ModelFamily]) -> bool:
    """Whether one of the families serves the model, or its text part."""
    try:
        text = flat(raw, families, "config.json")
    except ModelError:  # no family has this text part
        return False
    named = text.get("architectures") or []
    return any(name in family.architectures for family in families for name in named) or (
        not named and any(text.get("model_type") == family.name for family in families)
    )
