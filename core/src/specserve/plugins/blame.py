"""Who raised: from a traceback to the plugin whose code or object it went through last.

Only to name a culprit in metrics and logs; nothing is decided by it. No torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType


CORE = "core"
"""Stands for the plugin where nobody else's code was on the way."""


class Role(NamedTuple):
    """An object that a plugin brought, such as a kernel set, and what it is called."""

    thing: object
    plugin: str
    name: str
    used_in: tuple[str, ...] = ()
    """The core's modules that work with what it answers, and are the first to raise where that is wrong."""


class Blame:
    """`packages`: plugins by the top-level package of their code. The innermost frame decides."""

    def __init__(self, roles: Sequence[Role] = (), packages: Mapping[str, str] | None = None) -> None:
        self.roles, self.packages = roles, packages or {}

    def find(self, error: BaseException, where: str) -> tuple[str, str]:
        """(plugin, part); `where` names the part if the frames do not."""
        for frame in innermost_first(error):
            own, module = frame.f_locals.get("self"), str(frame.f_globals.get("__name__", ""))
            for role in self.roles:
                if own is role.thing or module in role.used_in:
                    return role.plugin, role.name
            if (package := module.partition(".")[0]) in self.packages:
                return self.packages[package], where
        return CORE, where


def innermost_first(error: BaseException) -> Iterator[FrameType]:
    """The frames that the error passed, and before them those of what caused it."""
    if error.__cause__ is not None:
        yield from innermost_first(error.__cause__)
    frames, at = [], error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    yield from reversed(frames)
