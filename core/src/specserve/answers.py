"""What plugins answer is held to the interface that was asked for, before anything is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Sequence


def refuse_partial(owner: str, answer: str, thing: object, parts: Sequence[str], kind: str) -> None:
    """`answer` begins the complaint about a thing that lacks some of `parts`: what the owner gave."""
    if missing := [part for part in parts if not hasattr(thing, part)]:
        raise PluginError(
            f"{owner} {answer}, which is no {kind}: it lacks {', '.join(missing)}. "
            f"See specserve.protocols.{kind}, or remove --plugin {owner}."
        )
