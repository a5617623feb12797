"""GGUF files byte by byte: right ones, and any wrong one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

U8, U32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 6, 7, 8, 9, 10


class Tensor(NamedTuple):
    name: bytes = b"token_embd.weight"
    dims: Sequence[int] = (32, 8)
    """As the file has them: the length of a row first."""
    kind: int = 0
    offset: int = 0


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def key(name: bytes, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def u32(name: bytes, value: int) -> bytes:
    return key(name, U32, struct.pack("<I", value))


def array(name: bytes, kind: int, count: int, values: bytes) -> bytes:
    return key(name, ARRAY, struct.pack("<IQ", kind, count) + values)


def info(tensor: Tensor) -> bytes:
    dims = struct.pack(f"<I{len(tensor.dims)}Q", len(tensor.dims), *tensor.dims)
    return text(tensor.name) + dims + struct.pack("<IQ", tensor.kind, tensor.offset)


def file(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    *,
    data: int = 1024,
    start: bytes = b"GGUF\x03\0\0\0",
    counts: tuple[int, int] | None = None,
) -> bytes:
    """data: bytes behind the header, which ends at a multiple of 32. counts: of tensors and keys, where they are not
    those that are there."""
    header = start + struct.pack("<QQ", *(counts or (len(tensors), len(keys)))) + b"".join([*keys, *tensors])
    return header + b"\0" * (-len(header) % 32 + data)
