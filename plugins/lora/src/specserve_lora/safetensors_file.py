"""A safetensors file, read without mmap: one that is truncated meanwhile is an error and no SIGBUS.

Owns the format (8 bytes of header length, a JSON header, one buffer) and its errors. Shapes are known before the buffer
is read. Nothing is unpickled.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Annotated

import msgspec
import torch
from msgspec import Meta

from specserve.api.files import explain_json_error
from specserve_lora.errors import AdapterError

if TYPE_CHECKING:
    from typing import BinaryIO

    from torch import Tensor

DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
MAX_HEADER = 16 * 2**20
Size = Annotated[int, Meta(ge=0, le=2**62)]


class Entry(msgspec.Struct, frozen=True):
    """One tensor in the header; offsets are from the end of the header."""

    dtype: str
    shape: Annotated[list[Size], Meta(max_length=8)]
    data_offsets: tuple[Size, Size]


class SafetensorsFile:
    """The header is read and checked at construction; `read` reads the rest."""

    def __init__(self, file: BinaryIO, source: str) -> None:
        self.file, self.source = file, source
        self.length = os.fstat(file.fileno()).st_size
        length = self.read_exactly(8, "header length")
        size = int.from_bytes(length, "little")
        if not 2 <= size <= min(MAX_HEADER, self.length - 8):
            raise self.malformed(f"its header has {size} bytes, and the file {self.length}")
        self.header = bytes(length + self.read_exactly(size, "header"))
        self.entries = self.parse(self.header[8:])
        for name, entry in self.entries.items():
            self.check(name, entry)
        num_bytes = sum(end - begin for begin, end in (entry.data_offsets for entry in self.entries.values()))
        if num_bytes != (rest := self.length - len(self.header)):
            raise self.malformed(f"its tensors have {num_bytes} bytes, and {rest} follow the header")

    def parse(self, header: bytes) -> dict[str, Entry]:
        try:
            raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
            raw.pop("__metadata__", None)
            return {name: msgspec.json.decode(entry, type=Entry) for name, entry in raw.items()}
        except msgspec.ValidationError:
            form = '"dtype", "shape" and "data_offsets"'
            raise self.malformed(f"its header must be a JSON object of tensors, each with {form}") from None
        except msgspec.DecodeError as error:
            raise self.malformed(f"its header is not valid JSON: {explain_json_error(header, error)}") from None
        except (UnicodeDecodeError, RecursionError):
            raise self.malformed("its header is not valid JSON") from None

    def check(self, name: str, entry: Entry) -> None:
        if entry.dtype not in DTYPES:
            raise AdapterError(
                f"{self.source}: tensor {name[:200]} has type {entry.dtype[:20]}; allowed: {', '.join(DTYPES)}.",
                param="lora_path",
            )
        begin, end = entry.data_offsets
        size = math.prod(entry.shape) * DTYPES[entry.dtype].itemsize
        if end - begin != size or end > self.length - len(self.header):
            raise self.malformed(f"tensor {name[:200]} of {size} bytes has offsets {begin} to {end}")

    def read(self) -> bytearray:
        """All tensors' bytes."""
        return self.read_exactly(self.length - len(self.header), "tensors")

    def tensor(self, name: str, data: bytearray) -> Tensor:
        """A view of `data`, which `read` gave."""
        entry = self.entries[name]
        dtype = DTYPES[entry.dtype]
        flat = torch.frombuffer(data, dtype=dtype, count=math.prod(entry.shape), offset=entry.data_offsets[0])
        return flat.view(entry.shape)

    def read_exactly(self, size: int, what: str) -> bytearray:
        out = bytearray(size)
        try:
            got = self.file.readinto(out)  # type: ignore[attr-defined]
        except OSError as error:
            raise AdapterError(f"{self.source} cannot be read: {error.strerror}.", param="lora_path") from None
        if got != size:
            raise self.malformed(f"{what} of {size} bytes ends after {got}")
        return out

    def malformed(self, what: str) -> AdapterError:
        return AdapterError(
            f"{self.source} is truncated or not a safetensors file: {what}. Save the adapter again.", param="lora_path"
        )
