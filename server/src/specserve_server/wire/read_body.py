"""The body of a request, with every field served, known to change nothing, or refused by name.

Unknown names that nobody defines are ignored, unless the server is strict.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

import msgspec

from specserve.errors import RequestError
from specserve_checks.type_words import MAX_SHOWN
from specserve_server.bodies.known_fields import REFUSED
from specserve_server.state.server_state import state_of
from specserve_server.wire.decode_body import decode_body, subjects_of
from specserve_server.wire.field_rules import known_names, refusals
from specserve_server.wire.unknown_fields import MAX_NAME_LENGTH, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from aiohttp import web

    from specserve_checks.json_types import JsonValue

B = TypeVar("B", bound=msgspec.Struct)
ALIKE = 0.7
"""From this similarity on (difflib's ratio), another field was meant."""
MAX_NEUTRAL_LENGTH = 64
"""Bytes of JSON. Longer values, which may be hostile, are not decoded: none is neutral."""


async def read_body(request: web.Request, body_type: type[B]) -> B:
    """Raises RequestError for a field that would be ignored although it changes the answer."""
    data = await request.read()
    body = decode_body(data, body_type)
    check_fields(data, body_type, strict=state_of(request).config.strict_fields)
    return body


def check_fields(data: bytes, body_type: type[msgspec.Struct], *, strict: bool) -> None:
    """`data` was decoded as a `body_type` before. Of several refused fields the body's first is told."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    known = refusals(body_type)
    for name in fields:
        if name in known and not is_neutral(bytes(fields[name]), known[name].neutral):
            raise RequestError(f"{name}: {refused(name, bytes(fields[name]))}: {known[name].advice}.", param=name)
    refuse_misspelled(fields, body_type)
    if strict:
        refuse_unknown(fields, body_type, known_names(body_type))


def refuse_misspelled(fields: Mapping[str, msgspec.Raw], body_type: type[msgspec.Struct]) -> None:
    """An unknown name where the field that the body is about is missing, and is spelled alike."""
    subjects = subjects_of(body_type)
    if fields.keys().isdisjoint(subjects):
        for name in (name for name in fields if name not in known_names(body_type)):
            for meant in get_close_matches(name[:MAX_NAME_LENGTH], subjects, n=1, cutoff=ALIKE):
                text = f"{name[:MAX_NAME_LENGTH]}: there is no such field here; did you mean {meant}?"
                raise RequestError(text, param=name[:MAX_NAME_LENGTH])


def refused(name: str, value: bytes) -> str:
    """Whose fault it is: the value's, or the name's."""
    if name not in REFUSED:
        return "there is no such field here"
    return f"{shown_json(value)} is not served"


def shown_json(text: bytes) -> str:
    """Of a value that may be hostile: as the client wrote it, in one line and cut."""
    line = " ".join(text[: 4 * MAX_SHOWN].decode(errors="ignore").split())
    return line if len(line) <= MAX_SHOWN else line[: MAX_SHOWN - 1] + "…"


def is_neutral(value: bytes, neutral: Iterable[JsonValue]) -> bool:
    if len(value) > MAX_NEUTRAL_LENGTH:
        return False
    try:
        got = msgspec.json.decode(value)
    except msgspec.DecodeError:  # a number beyond all limits, or half of a surrogate pair
        return False
    return got is None or any(got == allowed for allowed in neutral)
