"""A C library as macOS has it, as far as this project calls it: with `sysctlbyname`, and without glibc's own."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest

SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_size_t
)


def serve_facts(monkeypatch: pytest.MonkeyPatch, facts: Mapping[str, str | int | bytes]) -> None:
    """Texts end with a zero byte, numbers have 32 bits; bytes are given as they are."""

    def sysctlbyname(name: bytes, old: int, length: ctypes._Pointer[ctypes.c_size_t], new: int, new_length: int) -> int:
        fact = facts.get(name.decode())
        if fact is None:
            return -1
        value = fact.to_bytes(4, "little") if isinstance(fact, int) else fact
        value = value.encode() + b"\0" if isinstance(value, str) else value
        if len(value) > length.contents.value or new or new_length:
            return -1
        ctypes.memmove(old, value, len(value))
        length.contents.value = len(value)
        return 0

    library = SimpleNamespace(sysctlbyname=SIGNATURE(sysctlbyname))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
