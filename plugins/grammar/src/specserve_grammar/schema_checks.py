"""What the grammar library takes and does not keep exactly: refused, with its place as a JSON pointer.

The library compares numbers as doubles, and counts the keys that are written, not the different ones.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, NoReturn

from specserve_grammar.errors import LENIENT, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
MAX_EXACT = 2**53
ANNOTATIONS = frozenset({"default", "examples", "title", "description", "$comment"})
VALUES = ANNOTATIONS | {"const", "enum"}
"""Keywords whose values are no schemas."""
NAMES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are names, not keywords."""


class RoundedFloat(float):
    """A number with more digits than a double keeps."""


def read_float(text: str) -> float:
    number = float(text)
    try:
        is_exact = abs(number) <= MAX_EXACT and Decimal(text) == Decimal(repr(number))
    except ArithmeticError:  # an exponent that Decimal does not take
        is_exact = False
    return number if is_exact else RoundedFloat(number)


def check_schema(schema: object, param: str, *, counts: bool = True) -> None:
    """Raises RequestError. `counts`: also for counts of keys that are too high to be enforced."""
    for pointer, keyword, holder in keywords(schema, ""):
        if keyword != "minProperties":
            check_numbers(pointer, keyword, holder[keyword], param)
        elif counts and is_too_high(holder):
            refuse_count(pointer, holder, param)


def unenforced_counts(schema: object) -> Iterator[str]:
    """Places of counts of keys that are too high to be enforced."""
    return (
        f"{keyword} at {pointer}"
        for pointer, keyword, holder in keywords(schema, "")
        if keyword == "minProperties" and is_too_high(holder)
    )


def keyword_places(schema: object, pointer: str = "") -> Iterator[tuple[str, str]]:
    """(pointer, keyword) of every keyword of the schema and of those within it. Values and annotations have none."""
    if isinstance(schema, list):
        for i, each in enumerate(schema):
            yield from keyword_places(each, f"{pointer}/{i}")
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        place = f"{pointer}/{escaped(key)}"
        yield place, key
        if key in NAMES and isinstance(value, dict):
            for name, each in value.items():
                yield from keyword_places(each, f"{place}/{escaped(name)}")
        elif key not in VALUES:
            yield from keyword_places(value, place)


def keywords(schema: object, pointer: str) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Those that are checked, with their pointers and the objects that hold them."""
    if isinstance(schema, list):
        for i, each in enumerate(schema):
            yield from keywords(each, f"{pointer}/{i}")
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        place = f"{pointer}/{escaped(key)}"
        if key in BOUNDS or key in ("const", "enum", "minProperties"):
            yield place, key, schema
        elif key in NAMES and isinstance(value, dict):
            for name, each in value.items():
                yield from keywords(each, f"{place}/{escaped(name)}")
        elif key not in ANNOTATIONS:
            yield from keywords(value, place)


def escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def check_numbers(pointer: str, keyword: str, value: object, param: str) -> None:
    for number in numbers(value):
        if isinstance(number, RoundedFloat) or abs(number) > MAX_EXACT:
            refuse(
                param,
                f"{keyword} at {pointer} has a number that is not enforced exactly: about {number!r}. Integers from "
                f"-{MAX_EXACT} to {MAX_EXACT} and decimals of up to 15 digits are; send a longer one as a string",
            )


def numbers(value: object) -> Iterator[int | float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, (list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)


def num_required(holder: dict[str, Any]) -> int:
    required = holder.get("required")
    return len({*map(str, required)}) if isinstance(required, list) else 0


def is_too_high(holder: dict[str, Any]) -> bool:
    """One key more than the required ones is enforced: a key that is written twice counts once."""
    least = holder["minProperties"]
    return isinstance(least, (int, float)) and least > num_required(holder) + 1


def refuse_count(pointer: str, holder: dict[str, Any], param: str) -> NoReturn:
    counts = f"{holder['minProperties']}, and {num_required(holder)} keys are required beside it"
    why = "one more than these is enforced, since a key that is written twice counts once"
    refuse(param, f"minProperties at {pointer} is {counts}: {why}. Name the keys in required; {LENIENT}")
