"""How weights are stored: files that hold named tensors, and weights of fewer bits within them.

Plugins answer the hook `weight_formats` with such objects; the engine's own are in `specserve.models.formats`. Knows
nothing about what a tensor means to a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from specserve.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from torch import Tensor

    from specserve.protocols.quantised import QuantisedWeight

T = TypeVar("T")

DOWNLOAD_AGAIN = "Download the model again."
NOT_OF_ONE_MODEL = "The weights and config.json are not of the same model."
FLOATS = ("F64", "F32", "BF16", "F16")
ALL_ROWS = slice(None)


class StoredTensor(NamedTuple):
    """What is known of a tensor before its numbers are read."""

    shape: tuple[int, ...]
    """[out, in] of a linear map's weight, however it is stored."""
    dtype: str
    """By the name that safetensors has for it: `BF16`; of a quantised weight, the format's own name, such as `Q4_K`."""
    num_bytes: int
    """In the file."""
    file: Path
    """For errors."""
    quantised: bool = False
    """Whether it is read as a QuantisedWeight. Any other is read as a tensor of a type in FLOATS."""


class WeightSource(ABC):
    """The tensors of one model, by name. Made from headers alone; numbers are read where they are asked for."""

    path: Path
    """The model's directory, for errors."""
    tensors: Mapping[str, StoredTensor]

    @abstractmethod
    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        """These rows of one of the `tensors`, on the CPU; a QuantisedWeight where it is `quantised`, whose dtype is
        float32 until the loader makes it the model's. Raises OSError where the file cannot be read."""

    def find(self, name: str) -> StoredTensor:
        """ModelError where there is no such tensor."""
        if (found := self.tensors.get(name)) is None:
            raise missing_tensor(self.path, name, len(self.tensors))
        return found


class WeightFormat:
    """A way in which weights are stored: WeightFiles or a QuantMethod."""

    name: str


class WeightFiles(WeightFormat, ABC):
    """Files that hold a model's tensors, beside its config.json."""

    patterns: tuple[str, ...]
    """Patterns for the names of these files, such as `*.npz`: by them they are found, and downloaded from the hub."""

    def files(self, path: Path) -> Collection[str]:
        """The names of the files in directory `path` that are of this format; none where the model has none."""
        return sorted(file.name for pattern in self.patterns for file in path.glob(pattern))

    @abstractmethod
    def open(self, path: Path) -> WeightSource:
        """The tensors of the model in directory `path`, which has such files. Raises ModelError, and OSError where a
        file cannot be read."""


class QuantMethod(WeightFormat, ABC):
    """Weights of fewer bits among a file's tensors, as the `quantization_config` of config.json describes them.

    Its `name` is what `quant_method` says there.
    """

    reads: str = ""
    """Which settings are read, where not all are; for the error about any other method."""

    @abstractmethod
    def open(self, stored: WeightSource, settings: Mapping[str, Any], where: str) -> WeightSource:
        """The tensors as a model has them: for each quantised weight its name, such as `lm_head.weight`, instead of
        those of its parts; all others as they are. settings: `quantization_config`; `where` names its file in errors,
        which are ModelErrors."""


def missing_tensor(path: Path, name: str, num_others: int) -> ModelError:
    return ModelError(
        f"{path}: tensor {name} is missing; {num_others} others are there. The weights and config.json are not of the "
        f"same model, or a file is missing. {DOWNLOAD_AGAIN}"
    )


def expect(found: StoredTensor, name: str, shape: tuple[int, ...], dtypes: Sequence[str], says: str) -> None:
    """ModelError unless the tensor is of that shape and of one of these types. says: which file or tensor wants it."""
    if found.shape != shape:
        raise ModelError(
            f"{found.file}: tensor {name} has shape {list(found.shape)}, but {says} says {list(shape)}. "
            f"{NOT_OF_ONE_MODEL}"
        )
    if found.dtype not in dtypes:
        raise ModelError(
            f"{found.file}: tensor {name} has type {found.dtype}; allowed: {', '.join(dtypes)}. "
            "Use the unquantised checkpoint."
        )
