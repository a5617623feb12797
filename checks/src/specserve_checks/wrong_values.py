"""What is wrong with a value that msgspec refuses: where, what is allowed there, and what was given.

msgspec says where in its own words and never says what was given. `convert` is its `convert` with these messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
from msgspec import inspect

from specserve_checks.type_words import (
    LISTS,
    MAX_SHOWN,
    described_members,
    in_words,
    listed,
    members,
    plain,
    shown,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

T = TypeVar("T")
PLACE = re.compile(r" - at (?P<key>`key` in )?`\$(?P<path>[^`]*)`$")
"""The end of msgspec's message."""
STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]|\[\.\.\.\]")
NAMED = re.compile(r"^Object (?P<what>missing required|contains unknown) field `(?P<name>.*)`$")
OF_MSGSPEC = ("Expected ", "Invalid ")
"""How its other messages begin. A Struct's `__post_init__` may refuse a value, too, in words of its own."""
OUT_OF_RANGE = ("Number out of range", "Integer value out of range")
UNKNOWN_VALUE = object()
"""Where the value itself cannot be decoded, such as a number that is too large."""
MAX_NAME = 64


class WrongValue(NamedTuple):
    path: str
    """`messages[0].content`; empty for the value itself."""
    text: str
    """`must be a string; got 5`."""

    def __str__(self) -> str:
        """A sentence."""
        text = f"{self.path}: {self.text}" if self.path else self.text
        return text if text.endswith("?") else f"{text}."


class Place(NamedTuple):
    kind: inspect.Type
    value: object
    path: str = ""


def convert(value: object, annotation: type[T], refuse: Callable[[WrongValue], Exception]) -> T:
    """Raises what `refuse` makes of the first wrong value."""
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        raise refuse(find_wrong_value(error, value, annotation)) from None


def find_wrong_value(error: msgspec.ValidationError, value: object, annotation: object) -> WrongValue:
    """`value`: what msgspec was given to convert or decode to `annotation`, decoded without a type."""
    message = str(error)
    where = PLACE.search(message)
    place = Place(described(annotation), value)
    for step in STEP.finditer(where["path"] if where else ""):
        place = step_into(place, step)
    if where and where["key"]:
        return wrong_key(place)
    what = PLACE.sub("", message)
    if what in OUT_OF_RANGE:
        return WrongValue(place.path, f"must be {in_words(place.kind)}; got a number that is too large")
    if named := NAMED.match(what):
        return wrong_field(place, named["name"], named["what"])
    return wrong_here(place) if what.startswith(OF_MSGSPEC) else WrongValue(place.path, what.rstrip("."))


@cache
def described(annotation: object) -> inspect.Type:
    return inspect.type_info(annotation)


def step_into(place: Place, step: re.Match[str]) -> Place:
    """Where msgspec does not tell which entry is wrong, it is the first that its type does not allow."""
    kinds, value, path = members(place.kind), place.value, place.path
    if name := step["name"]:
        inner = value.get(name, UNKNOWN_VALUE) if isinstance(value, Mapping) else UNKNOWN_VALUE
        return Place(field_kind(kinds, name), inner, f"{path}.{name}" if path else name)
    if step["index"]:
        index = int(step["index"])
        return Place(item_kind(kinds, index), entry_at(value, index), f"{path}[{index}]")
    for kind in kinds:
        if isinstance(kind, inspect.DictType):
            entries = value.items() if isinstance(value, Mapping) else ()
            wrong = ((key, each) for key, each in entries if not accepts(kind.value_type, each))
            key, inner = next(wrong, (None, UNKNOWN_VALUE))
            return Place(kind.value_type, inner, path if key is None else f"{path}[{shown(key)}]")
    return Place(item_kind(kinds, 0), UNKNOWN_VALUE, path)


def field_kind(kinds: Sequence[inspect.Type], name: str) -> inspect.Type:
    """The type of a field, or of the tag that distinguishes the Structs of a union."""
    structs = [kind for kind in kinds if isinstance(kind, inspect.StructType)]
    tags = tuple(kind.tag for kind in structs if kind.tag_field == name and kind.tag is not None)
    if tags:
        return inspect.LiteralType(values=tags)
    found = (field.type for kind in structs for field in kind.fields if field.encode_name == name)
    return next(found, inspect.AnyType())


def item_kind(kinds: Iterable[inspect.Type], index: int) -> inspect.Type:
    for kind in kinds:
        if isinstance(kind, LISTS):
            return kind.item_type
        if isinstance(kind, inspect.TupleType):
            return kind.item_types[index] if index < len(kind.item_types) else inspect.AnyType()
    return inspect.AnyType()


def entry_at(value: object, index: int) -> object:
    return value[index] if isinstance(value, list | tuple) and index < len(value) else UNKNOWN_VALUE


def wrong_key(place: Place) -> WrongValue:
    keys = place.value if isinstance(place.value, Mapping) else {}
    key_types = (kind.key_type for kind in members(place.kind) if isinstance(kind, inspect.DictType))
    kind = next(key_types, inspect.AnyType())
    wrong = next((key for key in keys if not accepts(kind, key)), UNKNOWN_VALUE)
    return WrongValue(place.path, f"each key must be {in_words(kind)}{got(wrong)}")


def wrong_field(place: Place, name: str, what: str) -> WrongValue:
    shown_name = name[:MAX_NAME]
    path = f"{place.path}.{shown_name}" if place.path else shown_name
    kinds = members(place.kind)
    if what == "missing required":
        return WrongValue(path, f"is missing; it must be {in_words(field_kind(kinds, name))}")
    names = [field.encode_name for kind in kinds if isinstance(kind, inspect.StructType) for field in kind.fields]
    nearest = get_close_matches(shown_name, names, n=1)
    return WrongValue(path, f"there is no such name here; {f'did you mean {nearest[0]}?' if nearest else known(names)}")


def known(names: Iterable[str]) -> str:
    return f"there are {', '.join(names)}"


def wrong_here(place: Place) -> WrongValue:
    value = place.value
    if value is UNKNOWN_VALUE:
        return WrongValue(place.path, f"must be {in_words(place.kind)}")
    if accepts(place.kind, value):
        return WrongValue(
            place.path, f"must be {in_words(place.kind)}; it is given more than once, once with another value"
        )
    same = [kind for kind in described_members(place.kind) if is_json_kind(plain(kind), value)]
    has_values = any(isinstance(kind, inspect.LiteralType) for kind in same)
    allowed = listed(words_of(kind).one for kind in same) if same and not has_values else in_words(place.kind)
    if same and isinstance(value, str | list | tuple | Mapping) and wrong_size(plain(same[0]), value):
        return WrongValue(place.path, f"must be {allowed}; got {size_of(value)}")
    return WrongValue(place.path, f"must be {allowed}{got(value)}")


def got(value: object) -> str:
    return "" if value is UNKNOWN_VALUE else f"; got {shown(value)}"


def size_of(value: str | list[object] | tuple[object, ...] | Mapping[str, object]) -> str:
    if isinstance(value, str):
        return shown(value) if len(value) < MAX_SHOWN - 1 else f"{len(value)} characters"
    return f"{len(value)} entries" if value else "none"


def wrong_size(kind: inspect.Type, value: str | list[object] | tuple[object, ...] | Mapping[str, object]) -> bool:
    minimum, maximum = getattr(kind, "min_length", None), getattr(kind, "max_length", None)
    return len(value) < (minimum or 0) or (maximum is not None and len(value) > maximum)


def is_json_kind(kind: inspect.Type, value: object) -> bool:
    """Whether the type is of the value's kind in JSON, whatever its bounds."""
    match kind:
        case inspect.AnyType() | inspect.RawType():
            return True
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.LiteralType():
            return any(type(value) is type(allowed) for allowed in kind.values)
        case inspect.StructType() | inspect.DictType():
            return isinstance(value, Mapping)
        case _:
            return isinstance(value, list | tuple) and isinstance(kind, (*LISTS, inspect.TupleType))


def accepts(kind: inspect.Type, value: object) -> bool:
    """Whether msgspec would take the value, in strict mode. Types that JSON has no word for take all values."""
    kind = plain(kind)
    if isinstance(kind, inspect.UnionType):
        return any(accepts(member, value) for member in kind.types)
    if isinstance(kind, inspect.NoneType):
        return value is None
    if not is_json_kind(kind, value):
        return False
    match kind, value:
        case ((inspect.IntType() | inspect.FloatType()), (int() | float())):
            return in_range(kind, value)
        case inspect.StrType(), str():
            fits = kind.pattern is None or re.search(kind.pattern, value) is not None
            return fits and not wrong_size(kind, value)
        case inspect.LiteralType(), _:
            return value in kind.values
        case inspect.StructType(), Mapping():
            return all(
                accepts(field.type, value[field.encode_name]) if field.encode_name in value else not field.required
                for field in kind.fields
            )
        case inspect.DictType(), Mapping():
            entries = (accepts(kind.key_type, key) and accepts(kind.value_type, each) for key, each in value.items())
            return not wrong_size(kind, value) and all(entries)
        case _, (list() | tuple()) if isinstance(kind, LISTS):
            return not wrong_size(kind, value) and all(accepts(kind.item_type, each) for each in value)
        case inspect.TupleType(), (list() | tuple()):
            pairs = zip(kind.item_types, value, strict=False)
            return len(value) == len(kind.item_types) and all(accepts(item, each) for item, each in pairs)
        case _:
            return True


def in_range(kind: inspect.IntType | inspect.FloatType, value: float) -> bool:
    return not (
        (kind.ge is not None and value < kind.ge)
        or (kind.gt is not None and value <= kind.gt)
        or (kind.le is not None and value > kind.le)
        or (kind.lt is not None and value >= kind.lt)
    )
