"""What an option may be, in words: from the bounds that its Struct states."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import inspect as types

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMES = {types.IntType: "a whole number", types.FloatType: "a number"}


def number_range(kind: type[msgspec.Struct], path: Sequence[str]) -> str:
    """`"a whole number from 1 to 64"`; empty for an option that is no number, or lies within another."""
    if len(path) != 1:
        return ""
    annotations = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    if path[0] not in annotations:
        return ""
    info = types.type_info(annotations[path[0]])
    members = info.types if isinstance(info, types.UnionType) else (info,)
    numbers = [each for each in members if isinstance(each, types.IntType | types.FloatType)]
    others = [each for each in members if each not in numbers and not isinstance(each, types.NoneType)]
    return "" if len(numbers) != 1 or others else in_words(numbers[0])


def in_words(info: types.IntType | types.FloatType) -> str:
    if info.ge is not None and info.le is not None:
        return f"{NAMES[type(info)]} from {info.ge} to {info.le}"
    words = {"of at least": info.ge, "more than": info.gt, "of at most": info.le, "less than": info.lt}
    bounds = " and ".join(f"{word} {bound}" for word, bound in words.items() if bound is not None)
    return f"{NAMES[type(info)]} {bounds}".rstrip()
