"""Attributes an exception to a plugin, by the innermost frame of its traceback that is the plugin's.

For metrics and logs only: nothing is decided by it. No torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType


CORE = "core"
"""In place of a plugin's name, where no frame is a plugin's."""


class Role(NamedTuple):
    """An object that a plugin returned, such as a kernel set; `name` is the part in metrics and logs."""

    value: object
    plugin: str
    name: str
    used_in: tuple[str, ...] = ()
    """Modules of the core that process what its methods return, and that raise where this is wrong."""


class Blame:
    """`packages`: plugins by the top-level package of their code."""

    def __init__(self, roles: Sequence[Role] = (), packages: Mapping[str, str] | None = None) -> None:
        self.roles, self.packages = roles, packages or {}

    def find(self, error: BaseException, where: str) -> tuple[str, str]:
        """(plugin, part); `where` names the part if the frames do not."""
        for frame in innermost_first(error):
            own, module = frame.f_locals.get("self"), str(frame.f_globals.get("__name__", ""))
            for role in self.roles:
                if own is role.value or module in role.used_in:
                    return role.plugin, role.name
            if (package := module.partition(".")[0]) in self.packages:
                return self.packages[package], where
        return CORE, where


def innermost_first(error: BaseException) -> Iterator[FrameType]:
    """The frames of the error's cause, then its own."""
    if error.__cause__ is not None:
        yield from innermost_first(error.__cause__)
    frames, at = [], error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next
    yield from reversed(frames)
