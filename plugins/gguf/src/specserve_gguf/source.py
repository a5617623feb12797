"""GGUF files as one of the engine's formats of weights: their tensors under the names that the engine looks for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from specserve.api import ModelError
from specserve.api.models import ALL_ROWS, StoredTensor, WeightFiles, WeightSource
from specserve_gguf.architectures import architecture_of
from specserve_gguf.blocks import FORMS
from specserve_gguf.choosing import files_in
from specserve_gguf.cursor import broken
from specserve_gguf.model_file import open_files
from specserve_gguf.reading import DENSE, read_part

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from torch import Tensor

    from specserve.api import QuantisedWeight
    from specserve_gguf.architectures.architecture import Architecture
    from specserve_gguf.model_file import FileTensor, ModelFile
    from specserve_gguf.parts import Part


log = logging.getLogger(__name__)


class Gguf(WeightFiles):
    name = "gguf"
    patterns = ()
    """Nothing is downloaded with a model of the hub: repositories have a file for each of many quantisations."""

    def files(self, path: Path) -> Collection[str]:
        return sorted(file.name for file in path.glob("*.gguf"))

    def open(self, path: Path) -> WeightSource:
        return GgufSource(path, open_files(files_in(path)))


class GgufSource(WeightSource):
    def __init__(self, path: Path, file: ModelFile) -> None:
        self.path, self.file = path, file
        architecture = architecture_of(file)
        self.parts = architecture.parts()
        warn_of_unread_keys(architecture)
        self.tensors = {name: stored(file.tensors[part.tensor], part) for name, part in self.parts.items()}

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor | QuantisedWeight:
        part = self.parts[name]
        return read_part(self.file.tensors[part.tensor], part, rows)


def warn_of_unread_keys(architecture: Architecture) -> None:
    architecture.config()
    if names := ", ".join(architecture.keys.unread()):
        file = architecture.file.file
        log.warning(
            "%s: not used: %s. If llama.cpp needs these keys for this model, its text will be wrong", file, names
        )


def stored(tensor: FileTensor, part: Part) -> StoredTensor:
    info = tensor.info
    check_type(tensor)
    check_columns(tensor, part)
    shape, num_bytes = info.shape, info.num_bytes
    if part.matrix is not None:
        if len(shape) == 1:
            raise broken(tensor.file, f"tensor {info.name} must be a stack of matrices, or of rows; got {list(shape)}")
        shape, num_bytes = shape[1:], num_bytes // shape[0]
    if part.as_row and len(shape) == 1:
        shape = (1, *shape)
    rows = range(*part.rows.indices(shape[0]))
    if part.of_channels:
        shape = (shape[0], 1, *shape[1:])
    num_bytes = num_bytes * len(rows) // shape[0]
    quantised = info.type.name in FORMS
    return StoredTensor((len(rows), *shape[1:]), info.type.name, num_bytes, tensor.file, quantised)


def check_type(tensor: FileTensor) -> None:
    """ModelError where its numbers cannot be read."""
    name, kind = tensor.info.name, tensor.info.type.name
    if kind not in FORMS and kind not in DENSE:
        raise ModelError(
            f"{tensor.file}: tensor {name} has type {kind}, which is not read; read are {', '.join([*DENSE, *FORMS])}. "
            "Use a file of another quantisation, such as Q4_K_M."
        )
    if kind in FORMS and len(tensor.info.shape) == 1:
        raise ModelError(
            f"{tensor.file}: tensor {name} has one dimension and type {kind}; allowed: {', '.join(DENSE)}. "
            "Use another file of the model."
        )


def check_columns(tensor: FileTensor, part: Part) -> None:
    """ModelError where its columns cannot be brought into the model's order: two heads would share a group."""
    heads, kind = part.value_columns, tensor.info.type.name
    if heads is None or kind not in FORMS or heads.size % FORMS[kind].group_size == 0:
        return
    raise ModelError(
        f"{tensor.file}: tensor {tensor.info.name} has type {kind}, in which {FORMS[kind].group_size} columns share a "
        f"scale; allowed with value heads of {heads.size} columns: {', '.join(DENSE)}, and types whose groups divide "
        "them. Use a file in which this tensor has such a type, such as F16."
    )
