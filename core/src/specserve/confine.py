"""Paths that clients name: inside one directory of the operator's, with links followed first.

Owns the check and its errors; what is outside is refused before anybody looks whether it exists. Knows nothing of what
is read there.
"""

from __future__ import annotations

from pathlib import Path

from specserve.errors import ConfigError, RequestError

MAX_SHOWN = 200


class UnusablePathError(RequestError):
    """Text that is no path here."""


class OutsideRootError(RequestError):
    """A client may not have this read."""

    status = 403
    type = "permission_error"


def find_root(option: str, path: str | None) -> Path | None:
    """The directory that `option` names, absolute and without links. ConfigError where there is none."""
    if path is None:
        return None
    try:
        root = resolved(expanded(path))
    except UnusablePathError as error:
        raise ConfigError(f"{option}: {error}") from None
    if not root.is_dir():
        raise ConfigError(f"{option} = {path!r} is not a directory. Create it, or leave the option out.")
    return root


def confined(path: str | Path, root: Path, option: str, *, param: str | None = None) -> Path:
    """`path`, relative to `root` (as `find_root` gave it) or absolute within it, without links."""
    target = resolved(root / path, param=param)
    if not target.is_relative_to(root):
        shown = str(path)[:MAX_SHOWN]
        raise OutsideRootError(f"{shown!r} is not inside {option}. Name something in that directory.", param=param)
    return target


def expanded(path: str, *, param: str | None = None) -> Path:
    """With the home directory in place of ~: for paths of the operator's."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # nobody's home
        raise UnusablePathError(f"{path[:MAX_SHOWN]!r} is not a usable path: {error}.", param=param) from None


def resolved(path: Path, *, param: str | None = None) -> Path:
    """Absolute and without links, whether or not it exists."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop of links
        raise UnusablePathError(f"{str(path)[:MAX_SHOWN]!r} is not a usable path: {error}.", param=param) from None
