"""What a strict server refuses: names that nobody defines, in a body and within its fields, with their path.

Values of any form, such as schemas, metadata and arguments, are not looked into: their types say so.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import inspect

from specserve.errors import RequestError
from specserve_checks.type_words import LISTS, members
from specserve_checks.wrong_values import described
from specserve_server.bodies.inner_fields import IGNORED_WITHIN, SERVED_TYPES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

MAX_NAME_LENGTH = 64
MAX_DEPTH = 8
"""Lists and objects within each other. Bodies have fewer; deeper blocks are refused later, by their types."""
MAX_LISTED = 12


class Place(NamedTuple):
    path: str
    kind: inspect.Type
    text: msgspec.Raw


def refuse_unknown(fields: Mapping[str, msgspec.Raw], body_type: type[msgspec.Struct], known: Collection[str]) -> None:
    """`fields` were decoded as a `body_type` before. `known`: its names, and those that it refuses or ignores. Raises
    RequestError."""
    for name in fields:
        if name not in known:
            refuse("", name, known, "see docs/server.md for those that there are")
    places = [*fields_of(Place("", described(body_type), msgspec.Raw()), body_type, fields)]
    for _ in range(MAX_DEPTH):
        places = [inner for place in places for inner in checked(place)]


def checked(place: Place) -> Iterator[Place]:
    """The values in a value whose names are known."""
    text = bytes(place.text)
    for kind in members(place.kind):
        if isinstance(kind, LISTS) and text.startswith(b"[") and holds_objects(kind):
            for i, each in enumerate(msgspec.json.decode(text, type=list[msgspec.Raw])):
                yield Place(f"{place.path}[{i}]", kind.item_type, each)
        elif isinstance(kind, inspect.StructType) and text.startswith(b"{"):
            fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
            if not has_other_type(fields, kind.cls):
                own = [field.encode_name for field in kind.fields]
                known = {*own, *IGNORED_WITHIN.get(kind.cls, ())}
                for name in fields:
                    if name not in known:
                        refuse(place.path, name, known, f"there are {', '.join(own[:MAX_LISTED])}")
                yield from fields_of(place, kind.cls, fields)


def fields_of(place: Place, kind: type[msgspec.Struct], fields: Mapping[str, msgspec.Raw]) -> Iterator[Place]:
    for name, inner in inner_kinds(kind).items():
        if name in fields:
            yield Place(f"{place.path}.{name}" if place.path else name, inner, fields[name])


@cache
def inner_kinds(kind: type[msgspec.Struct]) -> dict[str, inspect.Type]:
    """Of the fields that may hold objects with names."""
    info = described(kind)
    assert isinstance(info, inspect.StructType)
    return {field.encode_name: field.type for field in info.fields if holds_objects(field.type)}


def holds_objects(kind: inspect.Type) -> bool:
    return any(
        isinstance(member, inspect.StructType) or (isinstance(member, LISTS) and holds_objects(member.item_type))
        for member in members(kind)
    )


def has_other_type(fields: Mapping[str, msgspec.Raw], kind: type[msgspec.Struct]) -> bool:
    served = SERVED_TYPES.get(kind)
    given = bytes(fields.get("type", b"null"))
    return served is not None and given != b"null" and msgspec.json.decode(given) not in served


def refuse(path: str, name: str, known: Collection[str], otherwise: str) -> None:
    shown = name[:MAX_NAME_LENGTH]
    where = f"{path}.{shown}" if path else shown
    nearest = get_close_matches(shown, sorted(known), n=1)
    meant = f"did you mean {nearest[0]}?" if nearest else f"{otherwise}."
    text = f"no such field, and this server runs with --strict-fields; {meant}"
    param = path.partition("[")[0].partition(".")[0] or shown
    raise RequestError(f"{where}: {text}", param=param, code="unknown_field")
