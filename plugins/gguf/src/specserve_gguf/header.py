"""The header of one GGUF file: metadata, and where its tensors are. Reads no numbers of tensors.

Source: docs/gguf.md of ggml; versions 2 and 3.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import ModelError
from specserve_gguf.cursor import DOWNLOAD_AGAIN, Cursor, broken
from specserve_gguf.metadata import Value, read_metadata
from specserve_gguf.tensor_infos import TensorInfo, placed, read_infos

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SHORTEST = 24
"""Bytes of a file without keys and tensors."""
ALIGNMENT = "general.alignment"
DEFAULT_ALIGNMENT = 32


class Header(NamedTuple):
    file: Path
    metadata: dict[str, Value]
    tensors: dict[str, TensorInfo]


def read_header(file: Path) -> Header:
    """ModelError where the file is not one that can be read, or ends too early."""
    try:
        with file.open("rb") as opened:
            if opened.seek(0, 2) < SHORTEST:
                raise broken(file, f"it has fewer than {SHORTEST} bytes")
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return parse(file, data)
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read: {error}. {DOWNLOAD_AGAIN}") from None


def parse(file: Path, data: mmap.mmap) -> Header:
    cursor = Cursor(file, data)
    if (magic := cursor.take(len(MAGIC), "the magic number")) != MAGIC:
        raise broken(file, f"it begins with {magic!r} and not with {MAGIC!r}")
    check_version(file, cursor.whole("I", "the version"))
    num_tensors, num_keys = cursor.whole("Q", "the number of tensors"), cursor.whole("Q", "the number of keys")
    metadata = read_metadata(cursor, num_keys)
    infos = read_infos(cursor, num_tensors)
    in_place = placed(infos, cursor, metadata.get(ALIGNMENT, DEFAULT_ALIGNMENT))
    return Header(file, metadata, {info.name: info for info in in_place})


def check_version(file: Path, version: int) -> None:
    if version in VERSIONS:
        return
    if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
        raise ModelError(
            f"{file} is a big-endian GGUF file, which is not read. Use the little-endian file, or convert it with "
            "gguf-convert-endian."
        )
    raise ModelError(
        f"{file} has version {version} of GGUF; allowed: {' and '.join(map(str, VERSIONS))}. Convert the model again "
        "with a current llama.cpp, or use a newer specserve-plugin-gguf."
    )
