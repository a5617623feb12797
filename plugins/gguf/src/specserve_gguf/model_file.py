"""A model in one GGUF file, or in several that are its shards: their metadata and tensors together, and tensors' bytes.

Knows nothing about architectures.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from specserve.api import ModelError
from specserve_gguf.cursor import DOWNLOAD_AGAIN, broken
from specserve_gguf.header import read_header

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from specserve_gguf.metadata import Value
    from specserve_gguf.tensor_infos import TensorInfo

Rows: TypeAlias = "slice | NDArray[np.int64]"
"""Of a tensor's first dimension: some, or each by its number, in any order."""
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class FileTensor(NamedTuple):
    """Of which of the files a tensor is, and where."""

    file: Path
    info: TensorInfo


class ModelFile(NamedTuple):
    file: Path
    """The first one, for errors."""
    metadata: Mapping[str, Value]
    tensors: Mapping[str, FileTensor]


def open_files(files: Sequence[Path]) -> ModelFile:
    """files: all shards, in their order. Raises ModelError."""
    headers = [read_header(file) for file in files]
    first = headers[0]
    check_count(first.file, first.metadata.get("split.count", 1), len(files))
    tensors: dict[str, FileTensor] = {}
    for header in headers:
        for name, info in header.tensors.items():
            if name in tensors:
                raise broken(header.file, f"tensor {name!r} is also in {tensors[name].file.name}")
            tensors[name] = FileTensor(header.file, info)
    return ModelFile(first.file, first.metadata, tensors)


def check_count(file: Path, says: object, found: int) -> None:
    if says not in (found, 0):
        raise ModelError(
            f"{file} says that it is one of {says} files, but {found} is there. Put all of them, with the names that "
            "they were downloaded with, into one directory."
        )


def shards_of(file: Path) -> list[Path]:
    """All files of the model of which `file` is one, in their order. ModelError where one is missing."""
    match = SHARD.fullmatch(file.name)
    if match is None:
        return [file]
    stem, _, count = match.groups()
    found = [file.with_name(f"{stem}-{number:05}-of-{count}.gguf") for number in range(1, int(count) + 1)]
    missing = [each.name for each in found if not each.is_file()]
    if missing or not found:
        raise ModelError(
            f"{file} is one of {int(count)} files of a model, and {len(missing)} are missing, such as "
            f"{next(iter(missing), file.name)}. Download them into the same directory."
        )
    return found


class FileRows:
    """Rows of a tensor with two dimensions that are read where they are asked for, as `read_rows` has them."""

    def __init__(self, tensor: FileTensor, rows: Rows) -> None:
        self.tensor = tensor
        self.rows = range(tensor.info.shape[0])[rows] if isinstance(rows, slice) else rows

    @property
    def shape(self) -> tuple[int, ...]:
        kind = self.tensor.info.type
        return len(self.rows), self.tensor.info.shape[1] // kind.block, kind.num_bytes

    def __getitem__(self, some: slice) -> NDArray[np.uint8]:
        wanted = self.rows[some]
        return read_rows(self.tensor, slice_of(wanted) if isinstance(wanted, range) else wanted)


def slice_of(rows: range) -> slice:
    return slice(rows.start, rows.stop, rows.step)


def read_rows(tensor: FileTensor, rows: Rows) -> NDArray[np.uint8]:
    """Some of the tensor's first dimension, as the file has them: [rows, ..., blocks, bytes of a block]. Raises OSError
    and ModelError."""
    if not isinstance(rows, slice):
        return np.concatenate([read_rows(tensor, run) for run in runs(rows)])
    info = tensor.info
    count, *others, width = info.shape if len(info.shape) > 1 else (1, *info.shape)
    begin, end, step = rows.indices(count) if len(info.shape) > 1 else (0, 1, 1)
    assert step > 0, "rows are read in their order"
    shape = (*others, width // info.type.block, info.type.num_bytes)
    size = int(np.prod(shape))
    read = np.fromfile(tensor.file, np.uint8, max(end - begin, 0) * size, offset=info.begin + begin * size)
    if read.size < max(end - begin, 0) * size:
        raise ModelError(f"{tensor.file} ends before tensor {info.name} does. {DOWNLOAD_AGAIN}")
    return read.reshape(-1, *shape)[::step]


def runs(order: NDArray[np.int64]) -> Iterator[slice]:
    """Rows that follow each other in the file are read at once. One empty run of no rows."""
    if not len(order):
        yield slice(0, 0)
        return
    ends = [*(np.flatnonzero(np.diff(order) != 1) + 1).tolist(), len(order)]
    for begin, end in pairwise([0, *ends]):
        yield slice(int(order[begin]), int(order[begin]) + end - begin)
