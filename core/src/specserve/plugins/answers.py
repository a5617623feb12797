"""What plugins answer is held to the interface that was asked for, before anything is called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

from specserve.errors import PluginError
from specserve.faults import FAULTS, said

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

T = TypeVar("T")


def refuse_partial(
    owner: str, answer: str, thing: object, kind: str, *, attributes: Sequence[str] = (), methods: Sequence[str] = ()
) -> None:
    """`answer` begins the complaint about a thing that lacks some of its parts: what the owner gave."""
    if missing := lacking(thing, attributes, methods):
        raise PluginError(
            f"{owner} {answer}, which is no {kind}: it lacks {', '.join(missing)}. "
            f"See specserve.protocols.{kind}, or remove --plugin {owner}."
        )


def lacking(thing: object, attributes: Sequence[str] = (), methods: Sequence[str] = ()) -> list[str]:
    """The parts that it does not have; a method that cannot be called is not there."""
    missing = [name for name in attributes if not hasattr(thing, name)]
    return missing + [name for name in methods if not callable(getattr(thing, name, None))]


def refuse_other(owner: str, what: str, thing: object, kind: type) -> None:
    if not isinstance(thing, kind):
        home = "" if kind.__module__ == "builtins" else "specserve.protocols."
        raise other_kind(owner, what, thing, f"a {home}{kind.__name__}")


def other_kind(owner: str, what: str, got: object, wanted: str) -> PluginError:
    """The error for a part of an answer that is of another kind."""
    return PluginError(
        f"{owner}: {what} must be {wanted}; got {type(got).__name__} {shortened(got)}. "
        f"Repair the plugin, or remove --plugin {owner}."
    )


def all_of(owner: str, hook: str, answer: Iterable[T]) -> list[T]:
    """The things of an answer that is to hold several."""
    if isinstance(answer, (str, bytes, Mapping)) or not hasattr(answer, "__iter__"):
        raise other_kind(owner, f"what {hook} returns", answer, "a list of them")
    try:
        return list(answer)
    except FAULTS as error:
        raise PluginError(
            f"{owner} {said(error)} while what its hook {hook} returned was read. "
            f"Repair the plugin, or remove --plugin {owner}."
        ) from error


def shortened(thing: object) -> str:
    try:
        text = repr(thing)
    except FAULTS:  # of a stranger's object
        return ""
    return text if len(text) <= 60 else text[:59] + "…"
