"""Types and values in the words of JSON, for error messages: `an integer between 1 and 128`, `"many"`.

Types are those of `msgspec.inspect`. A bounded type says its bounds, null is never mentioned, and no value is shown at
a length that could fill a log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec
from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Iterable

VAST = 2**31 - 1
"""Stands for no bound, where every whole number must have one."""
MAX_SHOWN = 60
"""Characters of a value."""
MAX_SHOWN_ENTRIES, MAX_SHOWN_DEPTH = 8, 3
MAX_SHOWN_FIELDS = 4
LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)
Collection: TypeAlias = inspect.ListType | inspect.VarTupleType | inspect.SetType | inspect.FrozenSetType


class Words(NamedTuple):
    one: str
    many: str


def members(kind: inspect.Type) -> list[inspect.Type]:
    """The members of a union without null; any other type itself. Descriptions are taken off."""
    kind = plain(kind)
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    return [plain(member) for member in kind.types if not isinstance(plain(member), inspect.NoneType)]


def plain(kind: inspect.Type) -> inspect.Type:
    return plain(kind.type) if isinstance(kind, inspect.Metadata) else kind


def in_words(kind: inspect.Type) -> str:
    """`a string or a list of strings`."""
    words: list[str] = []
    for member in described_members(kind):
        words += map(shown, member.values) if isinstance(member, inspect.LiteralType) else [words_of(member).one]
    return listed(dict.fromkeys(words))


def described_members(kind: inspect.Type) -> list[inspect.Type]:
    """As `members`, with descriptions."""
    if isinstance(kind, inspect.Metadata) and description_of(kind) is None:
        return described_members(kind.type)
    if not isinstance(kind, inspect.UnionType):
        return [kind]
    return [each for each in kind.types if not isinstance(plain(each), inspect.NoneType)]


def description_of(kind: inspect.Metadata) -> str | None:
    """The form of a string, in the words of its author."""
    found = (kind.extra_json_schema or {}).get("description")
    return found if isinstance(found, str) and isinstance(kind.type, inspect.StrType) else None


def words_of(kind: inspect.Type) -> Words:
    match kind:
        case inspect.Metadata():
            found = description_of(kind)
            return words_of(kind.type) if found is None else Words(found, f"strings, each {found}")
        case inspect.BoolType():
            return Words("true or false", "booleans")
        case inspect.IntType() | inspect.FloatType():
            one, many = ("an integer", "integers") if isinstance(kind, inspect.IntType) else ("a number", "numbers")
            return Words(one + range_words(kind), many + range_words(without_vast_bound(kind)))
        case inspect.StrType():
            tail = string_tail(kind)
            return Words(f"a string{tail}", f"strings{tail}")
        case inspect.LiteralType():
            values = listed(shown(value) for value in kind.values)
            return Words(values, f"values {values}")
        case inspect.StructType():
            return Words(f"an object with {field_names(kind)}", f"objects with {field_names(kind)}")
        case inspect.DictType():
            tail = f"{size_words(kind)}{entry_words(kind.value_type, 'values', kind)}"
            return Words(f"an object of {tail}" if tail else "an object", f"objects of {tail}" if tail else "objects")
        case _ if isinstance(kind, LISTS):
            tail = f"{size_words(kind)}{entry_words(kind.item_type, 'entries', kind)}"
            return Words(f"a list of {tail}" if tail else "a list", f"lists of {tail}" if tail else "lists")
        case inspect.TupleType():
            return Words(f"a list of {len(kind.item_types)} entries", f"lists of {len(kind.item_types)} entries")
        case inspect.UnionType():
            return Words(in_words(kind), listed(words_of(member).many for member in described_members(kind)))
        case inspect.EnumType():
            values = listed(shown(value.value) for value in kind.cls)
            return Words(values, f"values {values}")
        case inspect.AnyType() | inspect.RawType():
            return Words("any value", "any values")
        case _:
            name = type(kind).__name__.removesuffix("Type").lower()
            return Words(f"a {name}", f"values of the type {name}")


def entry_words(kind: inspect.Type, name: str, holder: inspect.Type) -> str:
    """What a list or an object holds; empty where it may be anything."""
    if isinstance(plain(kind), inspect.AnyType | inspect.RawType):
        return name if size_words(holder) else ""
    return listed(dict.fromkeys(words_of(member).many for member in described_members(kind)))


def size_words(kind: inspect.Type) -> str:
    minimum, maximum = getattr(kind, "min_length", None), getattr(kind, "max_length", None)
    if minimum is None:
        return "" if maximum is None else f"at most {maximum} "
    if maximum is None:
        return "one or more " if minimum == 1 else f"at least {minimum} "
    return f"{minimum} to {maximum} "


def string_tail(kind: inspect.StrType) -> str:
    if kind.pattern is not None:
        return f" that matches {kind.pattern}"
    return f" of {size_words(kind)}characters" if size_words(kind) else ""


def without_vast_bound(kind: inspect.IntType | inspect.FloatType) -> inspect.IntType | inspect.FloatType:
    """Among other words, a bound that hardly anybody reaches is noise."""
    return kind if kind.le != VAST else msgspec.structs.replace(kind, le=None)


def range_words(kind: inspect.IntType | inspect.FloatType) -> str:
    if kind.ge is not None and kind.le is not None:
        return f" between {kind.ge} and {kind.le}"
    bounds = {"of at least": kind.ge, "above": kind.gt, "of at most": kind.le, "below": kind.lt}
    found = [f"{word} {bound}" for word, bound in bounds.items() if bound is not None]
    return f" {' and '.join(found)}" if found else ""


def field_names(kind: inspect.StructType) -> str:
    """The required ones first."""
    fields = sorted(kind.fields, key=lambda field: not field.required)
    names = [f'"{field.encode_name}"' for field in fields]
    more = " and others" if len(names) > MAX_SHOWN_FIELDS else ""
    return ", ".join(names[:MAX_SHOWN_FIELDS]) + more or "no fields"


def listed(words: Iterable[str]) -> str:
    """`a, b or c`."""
    *first, last = list(words) or ["nothing"]
    return f"{', '.join(first)} or {last}" if first else last


def shown(value: object) -> str:
    """As JSON, in one line and cut."""
    text = msgspec.json.encode(abbreviated(value, MAX_SHOWN_DEPTH), enc_hook=str).decode()
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def abbreviated(value: object, depth: int) -> object:
    """The beginning of a value that may be huge: no more of it is written than may be shown."""
    if isinstance(value, str):
        return value[:MAX_SHOWN].encode(errors="replace").decode()
    if isinstance(value, Mapping):
        if depth == 0:
            return {}
        entries = islice(value.items(), MAX_SHOWN_ENTRIES)
        return {str(key)[:MAX_SHOWN]: abbreviated(each, depth - 1) for key, each in entries}
    if isinstance(value, Sequence | AbstractSet) and not isinstance(value, bytes | bytearray):
        return [abbreviated(each, depth - 1) for each in islice(value, MAX_SHOWN_ENTRIES)] if depth else []
    return value if isinstance(value, bool | int | float | None) else str(value)[:MAX_SHOWN]
