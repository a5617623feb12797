"""Reading a checkpoint's tensors from safetensors files, single or sharded.

Owns the file formats and their errors; never unpickles (a pickle can run any code). Shapes are
checked from the headers before anything is allocated. Knows nothing about what the tensors mean.
"""

from __future__ import annotations

import logging
import math
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from safetensors import SafetensorError, safe_open

from specserve.errors import ModelError
from specserve.model_files import read_json
from specserve.models.broken_file import DOWNLOAD_AGAIN, why_unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
FLOATS = ("F64", "F32", "BF16", "F16")
ITEM_SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2}
ANY_FLOAT: Mapping[str, tuple[str, ...]] = {}


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


class View(NamedTuple):
    """A tensor that the file has under another name, or some rows of it."""

    stored: str
    rows: slice | None
    """None: all."""


class Checkpoint:
    """The tensors of one model directory, by name. Every header is read when it is made; `take` reads data."""

    def __init__(self, path: Path, on_progress: Progress | None = None) -> None:
        self.path = path
        self._on_progress = on_progress
        self._files: dict[str, SafetensorsFile] = {}
        self._where: dict[str, str] = {}
        unlisted: dict[str, str] = {}
        for file, names in weight_files(path).items():
            self._files[file] = opened = _open(path / file)
            held = set(opened.keys())
            if absent := sorted(set(names or ()) - held):
                raise ModelError(f"{path / file} lacks tensor {absent[0]}, which {INDEX} puts there. {DOWNLOAD_AGAIN}")
            self._where |= dict.fromkeys(names or (), file)
            unlisted |= dict.fromkeys(held, file)
        self._where = unlisted | self._where  # a shard may hold more than its index says, such as the output head
        self._views: dict[str, View] = {}
        self._done = 0
        self._total = sum(self._num_bytes(name) for name in self._where)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        shape = tuple(self._header(name).get_shape())
        view = self._views.get(name)
        return shape if view is None or view.rows is None else (len(range(*view.rows.indices(shape[0]))), *shape[1:])

    def kind(self, name: str) -> str:
        """The type of its numbers, as safetensors name it: `BF16`."""
        return self._header(name).get_dtype()

    def rows(self, name: str, rows: slice) -> Tensor:
        """Some rows of a tensor, read from disk; they do not count as progress."""
        header, view = self._header(name), self._views.get(name)
        if view is not None and view.rows is not None:
            picked = range(*view.rows.indices(header.get_shape()[0]))[rows]
            rows = slice(picked.start, picked.stop, picked.step)
        with self._read_errors(name):
            return header[rows]

    def rename(self, stored: str, name: str) -> None:
        """The tensor that the file calls `stored` has another name from now on."""
        self.split(stored, {name: None})

    def split(self, stored: str, parts: Mapping[str, slice | None]) -> None:
        """The rows of the tensor that the file calls `stored` are tensors of these names from now on; None: all."""
        file = self._where.pop(stored)
        for name, rows in parts.items():
            self._views[name], self._where[name] = View(stored, rows), file

    def check(self, expected: Mapping[str, tuple[int, ...]], kinds: Mapping[str, tuple[str, ...]] = ANY_FLOAT) -> None:
        """Every expected tensor is there, of that shape and, unless `kinds` has others, floating point."""
        for name, shape in expected.items():
            if (got := self.shape(name)) != shape:
                raise ModelError(
                    f"{self._file(name)}: tensor {name} has shape {list(got)}, but config.json says {list(shape)}. "
                    "The weights and config.json are not of the same model."
                )
            if (kind := self.kind(name)) not in (allowed := kinds.get(name, FLOATS)):
                raise ModelError(
                    f"{self._file(name)}: tensor {name} has type {kind}; allowed: {', '.join(allowed)}. "
                    "Use the unquantised checkpoint."
                )

    def take(self, name: str) -> Tensor:
        """The tensor, read from disk; counts as progress."""
        header, view = self._header(name), self._views.get(name)
        with self._read_errors(name):
            if view is not None and view.rows is not None:
                tensor = header[view.rows]
            else:
                tensor = self._files[self._where[name]].get_tensor(name if view is None else view.stored)
        self._done += self._num_bytes(name)
        if self._on_progress is not None:
            self._on_progress(self._done, self._total)
        return tensor

    def finish(self) -> None:
        """Nothing more will be read: progress ends at the total even where tensors were not used."""
        if self._on_progress is not None and self._done < self._total:
            self._done = self._total
            self._on_progress(self._done, self._total)

    def _header(self, name: str) -> TensorHeader:
        if name not in self._where:
            raise ModelError(
                f"{self.path}: tensor {name} is missing; {len(self._where)} others are there. "
                f"The weights and config.json are not of the same model, or a file is missing. {DOWNLOAD_AGAIN}"
            )
        view = self._views.get(name)
        return self._files[self._where[name]].get_slice(name if view is None else view.stored)

    @contextmanager
    def _read_errors(self, name: str) -> Iterator[None]:
        try:
            yield
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{self._file(name)}: tensor {name} cannot be read: {error}. {DOWNLOAD_AGAIN}") from None

    def _num_bytes(self, name: str) -> int:
        return ITEM_SIZES.get(self.kind(name), 1) * math.prod(self.shape(name))

    def _file(self, name: str) -> Path:
        return self.path / self._where[name]


def weight_files(path: Path) -> dict[str, Iterable[str] | None]:
    """File names with the tensors that the index puts there; None: all tensors of the file."""
    if (path / SINGLE).exists():  # transformers, too, prefers it
        if (path / INDEX).exists():
            log.warning("%s has %s and %s: the first is read, and no shard", path, SINGLE, INDEX)
        return {SINGLE: None}
    if (path / INDEX).exists():
        return _index(path)
    pickles = sorted(file.name for kind in ("*.bin", "*.pt", "*.pth") for file in path.glob(kind))
    if pickles:
        raise ModelError(
            f"{path} has only pickled weights ({pickles[0]}). Loading a pickle runs code from the file, so it is "
            "refused. Convert the weights to safetensors, or use a revision that has them."
        )
    raise ModelError(f"{path} has no weights: neither {SINGLE} nor {INDEX}. {DOWNLOAD_AGAIN}")


def _index(path: Path) -> dict[str, Iterable[str] | None]:
    weight_map = read_json(path / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{path / INDEX} has no weight_map. {DOWNLOAD_AGAIN}")
    shards: dict[str, list[str]] = {}
    for tensor, file in weight_map.items():
        if not isinstance(file, str) or "/" in file or "\\" in file or not file.endswith(".safetensors"):
            raise ModelError(f"{path / INDEX}: {tensor} must be in a .safetensors file beside the index; got {file!r}.")
        shards.setdefault(file, []).append(tensor)
    missing = sorted(file for file in shards if not (path / file).exists())
    if missing:
        raise ModelError(
            f"{path}: shard {missing[0]} is missing, and so are {len(missing) - 1} of the other "
            f"{len(shards) - 1} that {INDEX} names. {DOWNLOAD_AGAIN}"
        )
    return dict(shards)


def _open(file: Path) -> SafetensorsFile:
    try:
        opened: SafetensorsFile = safe_open(file, framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(why_unreadable(file, error)) from None
    return opened
