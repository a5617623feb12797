"""Where the tensors of a GGUF file lie, checked: within the file, aligned, and apart from each other.

Knows nothing about what a tensor means.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import ModelError
from specserve_gguf.cursor import DOWNLOAD_AGAIN, broken
from specserve_gguf.ggml_types import TYPES, GgmlType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from specserve_gguf.cursor import Cursor

MAX_TENSORS = 1 << 16
MAX_DIMENSIONS = 4
LARGEST = 1 << 50
"""Numbers of a tensor: more than any disk holds, and far from an overflow of 64 bits."""
SHORTEST_INFO = 8 + 1 + 4 + 8 + 4 + 8
"""Bytes: the length of its name, the name, its dimensions, their number, its type, its offset."""
SHARE_OF_ALIGNMENT = range(3, 21)
"""An alignment is 2 to the power of one of these: 8 bytes to 1 MiB."""


class TensorInfo(NamedTuple):
    name: str
    shape: tuple[int, ...]
    """As torch has it: the last dimension is that of a row."""
    type: GgmlType
    begin: int
    """Its first byte: from where the tensors begin, or in the file."""

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) // self.type.block * self.type.num_bytes


def read_infos(cursor: Cursor, count: int) -> list[TensorInfo]:
    """`count` tensors, as the file says; each `begin` is still its offset. Raises ModelError."""
    if count > MAX_TENSORS:
        raise broken(cursor.file, f"it says that it has {count} tensors; at most {MAX_TENSORS} are read")
    cursor.need(count * SHORTEST_INFO, f"a list of {count} tensors")
    found: dict[str, TensorInfo] = {}
    for _ in range(count):
        info = read_info(cursor)
        if info.name in found:
            raise broken(cursor.file, f"tensor {info.name!r} is there twice")
        found[info.name] = info
    return list(found.values())


def read_info(cursor: Cursor) -> TensorInfo:
    name = cursor.name("a tensor")
    dims = cursor.whole("I", f"the dimensions of tensor {name}")
    if not 1 <= dims <= MAX_DIMENSIONS:
        raise broken(cursor.file, f"tensor {name} has {dims} dimensions; allowed: 1 to {MAX_DIMENSIONS}")
    shape = tuple(cursor.whole("Q", f"the shape of tensor {name}") for _ in range(dims))[::-1]
    if not 1 <= math.prod(shape) <= LARGEST:
        raise broken(cursor.file, f"tensor {name} has shape {list(shape)}; each number must be at least 1")
    number = cursor.whole("I", f"the type of tensor {name}")
    if number not in TYPES:
        raise ModelError(
            f"{cursor.file}: tensor {name} has type {number}, which is not known here. Use a file of another "
            "quantisation, such as Q4_K_M."
        )
    kind = TYPES[number]
    if shape[-1] % kind.block:
        raise broken(
            cursor.file, f"tensor {name} has rows of {shape[-1]} numbers; {kind.name} has blocks of {kind.block}"
        )
    return TensorInfo(name, shape, kind, cursor.whole("Q", f"the offset of tensor {name}"))


def placed(infos: Iterable[TensorInfo], cursor: Cursor, alignment: object) -> list[TensorInfo]:
    """The tensors at their places in the file, in that order. alignment: `general.alignment`. Raises ModelError."""
    if type(alignment) is not int or alignment not in (1 << share for share in SHARE_OF_ALIGNMENT):
        raise broken(cursor.file, f"general.alignment must be a power of two, 8 to {1 << 20}; got {alignment!r}")
    start = -(-cursor.at // alignment) * alignment
    size = len(cursor.data)
    found = []
    for info in sorted(infos, key=lambda info: info.begin):
        if info.begin % alignment:
            raise broken(cursor.file, f"tensor {info.name} is at {info.begin}, which is no multiple of {alignment}")
        moved = info._replace(begin=start + info.begin)
        if (end := moved.begin + moved.num_bytes) > size:
            raise ModelError(
                f"{cursor.file} is incomplete: tensor {info.name} ends at byte {end}, and the file has {size}. "
                f"{DOWNLOAD_AGAIN}"
            )
        found.append(moved)
    for first, second in pairwise(found):
        if first.begin + first.num_bytes > second.begin:
            raise broken(cursor.file, f"tensors {first.name} and {second.name} overlap")
    return found
