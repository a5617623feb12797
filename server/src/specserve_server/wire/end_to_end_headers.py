"""Headers that go on from one connection to the next, and those that end with it (RFC 9110, 7.6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

OF_A_CONNECTION = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)


def end_to_end(headers: Iterable[tuple[str, str]], without: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """In their order, each as often as it is there. `without`: more names to leave out, in lower case."""
    found = [(name, value) for name, value in headers]
    named = {each.strip().lower() for name, value in found if name.lower() == "connection" for each in value.split(",")}
    left_out = OF_A_CONNECTION.union(named, without)
    return tuple((name, value) for name, value in found if name.lower() not in left_out)
