"""The body of a request, with every field served, known to change nothing, or refused by name.

Unknown names that nobody defines are ignored, unless the server is strict.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import msgspec

from specserve.errors import RequestError
from specserve.server.decode_body import decode_body
from specserve.server.known_fields import EMPTY, IGNORED, REFUSED, RENAMED, Refusal
from specserve.server.request_bodies import ChatBody, CompletionBody
from specserve.server.state import state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from specserve.json_types import JsonValue

B = TypeVar("B", bound=msgspec.Struct)
ROUTES: dict[str, type[msgspec.Struct]] = {"/v1/chat/completions": ChatBody, "/v1/completions": CompletionBody}
"""A field that one of them has and the other has not is refused by the other."""
MAX_NEUTRAL_LENGTH = 64
"""Bytes of JSON. Longer values, which may be hostile, are not decoded: none is neutral."""
MAX_NAME_LENGTH = 64


async def read_body(request: web.Request, body_type: type[B]) -> B:
    """Raises RequestError for a field that would be ignored although it changes the answer."""
    data = await request.read()
    body = decode_body(data, body_type)
    check_fields(data, body_type, strict=state_of(request).config.strict_fields)
    return body


def check_fields(data: bytes, body_type: type[msgspec.Struct], *, strict: bool) -> None:
    """`data` was decoded as a `body_type` before."""
    fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    for name, refusal in refusals(body_type).items():
        if name in fields and not is_neutral(bytes(fields[name]), refusal.neutral):
            raise RequestError(f"{name}: not served with this value: {refusal.advice}.", param=name)
    if strict:
        refuse_unknown(fields, known_names(body_type))


@cache
def refusals(body_type: type[msgspec.Struct]) -> dict[str, Refusal]:
    """By the name of a field that this body has not."""
    found = {name: Refusal(EMPTY, f"send {ours}") for name, ours in RENAMED.items()} | REFUSED
    if body_type in ROUTES.values():
        for path, other in ROUTES.items():
            advice = Refusal((*EMPTY, "none"), f"it is a field of {path}")
            found |= {name: advice for name in other.__struct_fields__ if name not in found}
    return {name: refusal for name, refusal in found.items() if name not in body_type.__struct_fields__}


@cache
def known_names(body_type: type[msgspec.Struct]) -> frozenset[str]:
    """To tokenize the body of another route, its fields must be known there, too."""
    of_bodies = {name for body in (body_type, *ROUTES.values()) for name in body.__struct_fields__}
    return IGNORED | of_bodies | set(REFUSED) | set(RENAMED)


def is_neutral(value: bytes, neutral: Iterable[JsonValue]) -> bool:
    if len(value) > MAX_NEUTRAL_LENGTH:
        return False
    try:
        got = msgspec.json.decode(value)
    except msgspec.DecodeError:  # a number beyond all limits, or half of a surrogate pair
        return False
    return got is None or any(got == allowed for allowed in neutral)


def refuse_unknown(names: Iterable[str], known: frozenset[str]) -> None:
    for name in names:
        if name not in known:
            shown = name[:MAX_NAME_LENGTH]
            nearest = get_close_matches(shown, sorted(known), n=1)
            meant = f"did you mean {nearest[0]}?" if nearest else "see docs/server.md for those that there are."
            text = f"no such field, and this server runs with --strict-fields; {meant}"
            raise RequestError(f"{shown}: {text}", param=shown, code="unknown_field")
