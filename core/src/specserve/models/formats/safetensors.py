"""Safetensors files, single or sharded.

Owns the files' names and their errors; never unpickles (a pickle can run any code). Imports no torch by itself.
Format: https://huggingface.co/docs/safetensors
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Protocol

from safetensors import SafetensorError, safe_open

from specserve.errors import ModelError
from specserve.model_files import read_json
from specserve.models.broken_file import why_unreadable
from specserve.models.safetensors_header import INDEX, SINGLE
from specserve.models.weight_format import ALL_ROWS, DOWNLOAD_AGAIN, StoredTensor, WeightFiles, WeightSource

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from torch import Tensor

log = logging.getLogger(__name__)

ITEM_SIZES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2}
"""In bytes; of other types, one."""


class TensorHeader(Protocol):
    """The header of a tensor; its data is read where rows are asked for."""

    def get_shape(self) -> list[int]: ...

    def get_dtype(self) -> str: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


class SafetensorsFile(Protocol):
    """An open file, as `safetensors.safe_open` returns it."""

    def keys(self) -> Iterable[str]: ...

    def get_slice(self, name: str, /) -> TensorHeader: ...

    def get_tensor(self, name: str, /) -> Tensor: ...


class Safetensors(WeightFiles):
    name = "safetensors"
    patterns = ("*.safetensors",)

    def files(self, path: Path) -> Collection[str]:
        return shards(path)

    def open(self, path: Path) -> WeightSource:
        return SafetensorsSource(path)


class SafetensorsSource(WeightSource):
    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: dict[str, SafetensorsFile] = {}
        listed: dict[str, str] = {}
        unlisted: dict[str, str] = {}
        for file, names in shards(path).items():
            self._opened[file] = opened = open_file(path / file)
            held = set(opened.keys())
            if absent := sorted(set(names or ()) - held):
                raise ModelError(f"{path / file} lacks tensor {absent[0]}, which {INDEX} puts there. {DOWNLOAD_AGAIN}")
            listed |= dict.fromkeys(names or (), file)
            unlisted |= dict.fromkeys(held, file)
        self._where = unlisted | listed  # a shard may hold more than its index says, such as the output head
        self.tensors = {name: self._header(name, file) for name, file in self._where.items()}

    def _header(self, name: str, file: str) -> StoredTensor:
        header = self._opened[file].get_slice(name)
        shape, dtype = tuple(header.get_shape()), header.get_dtype()
        return StoredTensor(shape, dtype, ITEM_SIZES.get(dtype, 1) * math.prod(shape), self.path / file)

    def read(self, name: str, rows: slice = ALL_ROWS) -> Tensor:
        file = self._opened[self._where[name]]
        try:
            return file.get_tensor(name) if rows == ALL_ROWS else file.get_slice(name)[rows]
        except SafetensorError as error:
            raise OSError(str(error)) from None


def open_file(file: Path) -> SafetensorsFile:
    try:
        opened: SafetensorsFile = safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(why_unreadable(file, error)) from None
    return opened


def shards(path: Path) -> dict[str, Iterable[str] | None]:
    """File names with the tensors that the index puts there; None: all tensors of the file. Empty: the directory has
    neither the one file nor an index."""
    if (path / SINGLE).exists():  # transformers, too, prefers it
        if (path / INDEX).exists():
            log.warning("%s has %s and %s: the first is read, and no shard", path, SINGLE, INDEX)
        return {SINGLE: None}
    return listed_shards(path) if (path / INDEX).exists() else {}


def listed_shards(path: Path) -> dict[str, Iterable[str] | None]:
    weight_map = read_json(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{path / INDEX} has no weight_map. {DOWNLOAD_AGAIN}")
    found: dict[str, list[str]] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or "/" in file or "\\" in file or not file.endswith(".safetensors"):
            raise ModelError(f"{path / INDEX}: {tensor} must be in a .safetensors file beside the index; got {file!r}.")
        found.setdefault(file, []).append(tensor)
    missing = sorted(file for file in found if not (path / file).exists())
    if missing:
        raise ModelError(
            f"{path}: shard {missing[0]} is missing, and so are {len(missing) - 1} of the other "
            f"{len(found) - 1} that {INDEX} names. {DOWNLOAD_AGAIN}"
        )
    return dict(found)
