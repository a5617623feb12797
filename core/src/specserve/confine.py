"""Paths that clients name, confined to one directory that the operator names. Symbolic links are resolved first.

A path outside is refused without checking whether it exists. Knows nothing of what is read there.
"""

from __future__ import annotations

from pathlib import Path

from specserve.errors import ConfigError, RequestError

MAX_SHOWN = 200
"""Characters of a path in an error message."""


class UnusablePathError(RequestError):
    """The text cannot be a path on this system."""


class OutsideRootError(RequestError):
    """The path is not inside the directory that the operator named."""

    status = 403
    type = "permission_error"


def find_root(option: str, path: str | None) -> Path | None:
    """The directory that `option` names, resolved. ConfigError where there is none."""
    if path is None:
        return None
    try:
        root = resolve(expand_user(path))
    except UnusablePathError as error:
        raise ConfigError(f"{option}: {error}") from None
    if not root.is_dir():
        raise ConfigError(f"{option} = {path!r} is not a directory. Create it, or leave the option out.")
    return root


def resolve_inside(path: str | Path, root: Path, option: str, *, param: str | None = None) -> Path:
    """`path`, relative to `root` (as `find_root` gave it) or absolute within it, resolved."""
    target = resolve(root / path, param=param)
    if not target.is_relative_to(root):
        shown = str(path)[:MAX_SHOWN]
        raise OutsideRootError(f"{shown!r} is not inside {option}. Name something in that directory.", param=param)
    return target


def expand_user(path: str, *, param: str | None = None) -> Path:
    """With the home directory in place of ~: for paths that the operator names."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # there is no such user
        raise UnusablePathError(f"{path[:MAX_SHOWN]!r} is not a usable path: {error}.", param=param) from None


def resolve(path: Path, *, param: str | None = None) -> Path:
    """Absolute and without symbolic links; the path need not exist."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop of links
        raise UnusablePathError(f"{str(path)[:MAX_SHOWN]!r} is not a usable path: {error}.", param=param) from None
