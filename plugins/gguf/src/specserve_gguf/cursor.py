"""Reads values of a header one after the other. Every length is compared with what is left of the file before
anything is made of it; each error is a ModelError that names the file.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from specserve.api import ModelError

if TYPE_CHECKING:
    from mmap import mmap
    from pathlib import Path

DOWNLOAD_AGAIN = "Download the file again."
MAX_HEADER = 256 << 20
"""Bytes of everything before the tensors; the largest vocabularies take some 20 MB."""


def broken(file: Path, what: str) -> ModelError:
    return ModelError(f"{file} is not a GGUF file that can be read: {what}. {DOWNLOAD_AGAIN}")


class Cursor:
    """A place in the header of `file`, whose bytes are `data`."""

    def __init__(self, file: Path, data: mmap | bytes) -> None:
        self.file, self.data = file, data
        self.at = 0
        self.end = min(len(data), MAX_HEADER)

    def need(self, num_bytes: int, what: str) -> None:
        """ModelError where fewer bytes are left."""
        if num_bytes <= self.end - self.at:
            return
        if self.end < len(self.data):
            raise broken(self.file, f"its header does not end within {MAX_HEADER >> 20} MiB; it goes on with {what}")
        left = self.end - self.at
        raise broken(self.file, f"it ends within its header: {what} takes {num_bytes} bytes, and {left} are left")

    def number(self, code: str, what: str) -> int | float:
        """code: of `struct`, one letter."""
        size = struct.calcsize(f"<{code}")
        self.need(size, what)
        found: int | float = struct.unpack_from(f"<{code}", self.data, self.at)[0]
        self.at += size
        return found

    def whole(self, code: str, what: str) -> int:
        return int(self.number(code, what))

    def take(self, num_bytes: int, what: str) -> bytes:
        self.need(num_bytes, what)
        self.at += num_bytes
        return self.data[self.at - num_bytes : self.at]

    def name(self, what: str) -> str:
        """A text that is not empty."""
        if not (found := self.text(f"the name of {what}")):
            raise broken(self.file, f"{what} has no name")
        return found

    def text(self, what: str) -> str:
        """A length of 64 bits, and as many bytes of UTF-8."""
        taken = self.take(self.whole("Q", f"the length of {what}"), what)
        try:
            return taken.decode()
        except UnicodeDecodeError:
            raise broken(self.file, f"{what} is not UTF-8: {taken[:40]!r}") from None
