"""The keys and values of a GGUF file. Knows nothing about what they mean.

Source: docs/gguf.md of ggml.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from specserve_gguf.cursor import broken

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from specserve_gguf.cursor import Cursor

Numbers: TypeAlias = "NDArray[np.generic]"
Value: TypeAlias = "bool | int | float | str | list[str] | Numbers"

NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
"""Types of numbers, by the letters that `struct` and numpy have for them."""
BOOL, STRING, ARRAY = 7, 8, 9
MAX_KEYS = 1 << 16
MAX_STRINGS = 1 << 22
"""Of all arrays together: a vocabulary and its merges are some 500,000."""
SHORTEST_KEY = 8 + 1 + 4 + 1
"""Bytes: the length of its name, the name, its type, its value."""
LENGTH = 8
"""Bytes that say how long a string is."""


def read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    """`count` keys, as the file says. Raises ModelError."""
    if count > MAX_KEYS:
        raise broken(cursor.file, f"it says that it has {count} keys; at most {MAX_KEYS} are read")
    cursor.need(count * SHORTEST_KEY, f"metadata of {count} keys")
    found: dict[str, Value] = {}
    strings = 0
    for _ in range(count):
        key = cursor.name("a key")
        if key in found:
            raise broken(cursor.file, f"key {key!r} is there twice")
        value = read_value(cursor, cursor.whole("I", f"the type of key {key}"), key, MAX_STRINGS - strings)
        strings += len(value) if isinstance(value, list) else 0
        found[key] = value
    return found


def read_value(cursor: Cursor, kind: int, key: str, max_strings: int) -> Value:
    if kind in NUMBERS:
        return cursor.number(NUMBERS[kind], f"key {key}")
    if kind == BOOL:
        return bool(check_bools(cursor, cursor.take(1, f"key {key}"), key)[0])
    if kind == STRING:
        return cursor.text(f"key {key}")
    if kind == ARRAY:
        return read_array(cursor, key, max_strings)
    raise broken(cursor.file, f"key {key} has type {kind}; allowed: 0 to 12")


def read_array(cursor: Cursor, key: str, max_strings: int) -> list[str] | Numbers:
    kind, count = cursor.whole("I", f"the type in array {key}"), cursor.whole("Q", f"the length of array {key}")
    if kind in NUMBERS:
        dtype = np.dtype(f"<{NUMBERS[kind]}")
        return np.frombuffer(cursor.take(count * dtype.itemsize, f"array {key}"), dtype)
    if kind == BOOL:
        return np.frombuffer(check_bools(cursor, cursor.take(count, f"array {key}"), key), np.bool_)
    if kind == STRING:
        if count > max_strings:
            raise broken(cursor.file, f"array {key} has {count} strings; at most {max_strings} more are read")
        cursor.need(count * LENGTH, f"array {key} of {count} strings")
        return [cursor.text(f"a string in array {key}") for _ in range(count)]
    what = "arrays, which are not read" if kind == ARRAY else f"values of type {kind}; allowed: 0 to 8 and 10 to 12"
    raise broken(cursor.file, f"array {key} has {what}")


def check_bools(cursor: Cursor, taken: bytes, key: str) -> bytes:
    if taken.translate(None, b"\0\1"):
        raise broken(cursor.file, f"key {key} must be 0 or 1, being true or false")
    return taken
