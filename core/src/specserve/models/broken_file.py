"""Why a safetensors file cannot be opened: empty, cut off, or something else by that name; with the sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.models.file_formats import format_of
from specserve.models.safetensors_header import header_length, read_header
from specserve.models.weight_format import DOWNLOAD_AGAIN

if TYPE_CHECKING:
    from pathlib import Path


def why_unreadable(file: Path, error: Exception) -> str:
    """A sentence on the file, and what to do. `error`: what the library said."""
    try:
        return diagnosis(file) or f"{file} is not a safetensors file: {error}. {DOWNLOAD_AGAIN}"
    except OSError as failure:
        return f"{file} cannot be read: {failure.strerror or failure}. Check its permissions and the disk."


def diagnosis(file: Path) -> str:
    """Empty where sizes and first bytes explain nothing."""
    size = file.stat().st_size
    if not size:
        return f"{file} is truncated: it is empty (0 bytes). {DOWNLOAD_AGAIN}"
    other = format_of(file)
    if other is not None:
        return f"{file} is {other.what}. {other.advice}."
    length = header_length(file)
    if length is None:
        return "" if size >= 8 else f"{file} is truncated: it has {size} bytes, less than any header. {DOWNLOAD_AGAIN}"
    if size < length:
        return f"{file} is truncated: it has {size} bytes, and its header alone {length}. {DOWNLOAD_AGAIN}"
    header = read_header(file)
    if header is None or header.num_bytes == size:
        return ""
    if size < header.num_bytes:
        missing = header.num_bytes - size
        return (
            f"{file} is truncated: it has {size} of {header.num_bytes} bytes, {missing} are missing. {DOWNLOAD_AGAIN}"
        )
    extra = size - header.num_bytes
    return f"{file} has {extra} bytes behind the {header.num_bytes} that its header tells of. {DOWNLOAD_AGAIN}"
