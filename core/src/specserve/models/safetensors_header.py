"""The header of a safetensors file, read without its library: for files that the library refuses, and for names alone.

The format: eight bytes with the header's length N, little endian; N bytes of JSON; the tensors' data.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
"""A model's one file, and the one that says which of several files holds a tensor."""
MAX_HEADER = 100_000_000
"""The library's own limit."""
LENGTH_BYTES = 8


class SafetensorsHeader(NamedTuple):
    names: frozenset[str]
    num_bytes: int
    """What the whole file has, the header included."""


def header_length(file: Path) -> int | None:
    """What the first eight bytes say of the header, itself included; None where they are no such length."""
    with file.open("rb") as opened:
        start = opened.read(LENGTH_BYTES + 1)
    if len(start) < LENGTH_BYTES:
        return None
    (length,) = struct.unpack("<Q", start[:LENGTH_BYTES])
    follows = start[LENGTH_BYTES:]
    return LENGTH_BYTES + length if 0 < length <= MAX_HEADER and follows in (b"", b"{") else None


def read_header(file: Path) -> SafetensorsHeader | None:
    """None where the file has no whole header. Raises OSError."""
    length = header_length(file)
    if length is None or length > file.stat().st_size:
        return None
    with file.open("rb") as opened:
        opened.seek(LENGTH_BYTES)
        content = opened.read(length - LENGTH_BYTES)
    try:
        entries = json.loads(content)
        entries.pop("__metadata__", None)
        ends = [int(entry["data_offsets"][1]) for entry in entries.values()]
    except (ValueError, TypeError, LookupError, AttributeError):
        return None
    return SafetensorsHeader(frozenset(entries), length + max(ends, default=0))


def tensor_names(file: Path) -> frozenset[str]:
    """The names in the file's header; empty where it cannot be read."""
    try:
        header = read_header(file)
    except OSError:
        return frozenset()
    return frozenset() if header is None else header.names
