"""What macOS tells of itself by name, such as `hw.memsize`; other systems have files for it. No torch."""

from __future__ import annotations

import ctypes
import sys

LONGEST = 256
"""Bytes of a value."""


def sysctl_text(name: str) -> str:
    """Empty where the system does not tell."""
    return sysctl(name).partition(b"\0")[0].decode(errors="replace").strip()


def sysctl_number(name: str) -> int | None:
    """None where the system does not tell."""
    value = sysctl(name)
    return int.from_bytes(value, sys.byteorder) if value else None


def sysctl(name: str) -> bytes:
    """The value as the system has it in memory; empty where there is none, or another system."""
    ask = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if ask is None:
        return b""
    value, size = ctypes.create_string_buffer(LONGEST), ctypes.c_size_t(LONGEST)
    failed = ask(name.encode(), value, ctypes.byref(size), None, ctypes.c_size_t(0))
    return b"" if failed else value.raw[: size.value]
