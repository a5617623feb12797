"""The help of a flag: what it does, what is allowed, and the default. Fields of a configuration know the last two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_checks.allowed_values import Allowed, Unset, annotations_of

if TYPE_CHECKING:
    import msgspec


class OptionHelp(str):
    """The text that --help shows. Its parts are columns of the table in docs/operating.md."""

    __slots__ = ("allowed", "default", "what")

    what: str
    allowed: str
    default: str

    def __new__(cls, what: str, *, default: str, allowed: str = "", has_choices: bool = False) -> OptionHelp:
        """`has_choices`: argparse shows what is allowed."""
        parts = (what, "" if has_choices else allowed, f"default: {default}")
        self = super().__new__(cls, "; ".join(filter(None, parts)).replace("%", "%%"))
        self.what, self.allowed, self.default = what, allowed, default
        return self


def field_help(config: type[msgspec.Struct], name: str, what: str, *, has_choices: bool = False) -> OptionHelp:
    default, allowed = default_text(config, name), allowed_text(config, name)
    return OptionHelp(what, default=default, allowed=allowed, has_choices=has_choices)


def allowed_text(config: type[msgspec.Struct], name: str) -> str:
    """`0 to 65535`; empty where every value of the type is allowed."""
    return ", ".join(str(each) for each in annotations_of(config)[name] if isinstance(each, Allowed))


def default_text(config: type[msgspec.Struct], name: str) -> str:
    """`8000`, or what None means."""
    default = getattr(config(), name)
    if default is None:
        return next(each.meaning for each in annotations_of(config)[name] if isinstance(each, Unset))
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) if default not in ("", ()) else "none"
