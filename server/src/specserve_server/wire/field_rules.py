"""What each route does with fields that its body has not: a refusal with advice, or nothing."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from specserve_server.bodies import messages_names, responses_names
from specserve_server.bodies.known_fields import DEFAULTS, EMPTY, IGNORED, REFUSED, RENAMED, Refusal
from specserve_server.bodies.messages import CountTokensBody, MessagesBody
from specserve_server.bodies.requests import ChatBody, CompletionBody, TokenizeBody
from specserve_server.bodies.responses import ResponsesBody

if TYPE_CHECKING:
    from collections.abc import Mapping

    import msgspec

    from specserve_checks.json_types import JsonValue

ROUTES: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
}
"""A field that one of them has and another has not is refused by the other."""
COUNTED: dict[type[msgspec.Struct], tuple[type[msgspec.Struct], ...]] = {
    TokenizeBody: (ChatBody, CompletionBody),
    CountTokensBody: (MessagesBody,),
}
"""The bodies whose prompts a route tokenizes: it knows their fields, too."""
NAMES: dict[type[msgspec.Struct], Mapping[str, str]] = {
    ChatBody: {
        **dict.fromkeys(("system", "system_prompt", "instructions"), "messages that begin with one of the role system"),
        "input": "messages",
    },
    CompletionBody: {"messages or prompt": "prompt"},
    ResponsesBody: responses_names.FIELD_NAMES,
    MessagesBody: messages_names.FIELD_NAMES,
    CountTokensBody: messages_names.FIELD_NAMES,
}
"""What a body calls fields of a chat, or of other servers."""
IGNORED_BY: dict[type[msgspec.Struct], frozenset[str]] = {
    ResponsesBody: responses_names.IGNORED,
    MessagesBody: messages_names.IGNORED,
    CountTokensBody: messages_names.IGNORED,
}
"""What changes no answer of one route alone."""


@cache
def refusals(body_type: type[msgspec.Struct]) -> dict[str, Refusal]:
    """By the name of a field that this body has not."""
    renamed = RENAMED.keys() - counted_fields(body_type)
    found = {name: Refusal(EMPTY, advice(name, body_type)) for name in renamed} | REFUSED
    if body_type in ROUTES.values():
        others = {name for other in ROUTES.values() for name in other.__struct_fields__} - found.keys() - IGNORED
        found |= {name: Refusal(neutral_values(name), advice(name, body_type)) for name in others}
    unchanged = {*body_type.__struct_fields__, *IGNORED_BY.get(body_type, ())}
    return {name: refusal for name, refusal in found.items() if name not in unchanged}


def advice(name: str, body_type: type[msgspec.Struct]) -> str:
    """The name that the field has in this body, or the route that has it."""
    theirs = RENAMED.get(name, name)
    names = NAMES.get(body_type, {})
    ours = names.get(name, names.get(theirs, theirs))
    if ours != name and any(word.partition(".")[0] in body_type.__struct_fields__ for word in ours.split()):
        return f"send {ours}"
    owner = next((path for path, body in ROUTES.items() if theirs in body.__struct_fields__), None)
    return f"send {ours}" if owner is None else f"it is a field of {owner}"


def neutral_values(name: str) -> tuple[JsonValue, ...]:
    return (*EMPTY, *DEFAULTS.get(name, ()))


def counted_fields(body_type: type[msgspec.Struct]) -> set[str]:
    return {name for body in COUNTED.get(body_type, ()) for name in body.__struct_fields__}


@cache
def known_names(body_type: type[msgspec.Struct]) -> frozenset[str]:
    """What a strict server accepts, or refuses with advice."""
    own = {*body_type.__struct_fields__, *IGNORED_BY.get(body_type, ())} | counted_fields(body_type)
    return frozenset(own | IGNORED | refusals(body_type).keys())
