"""The file of --api-key-file: a key per line, or a name, blanks and a key. Blank lines and lines with # are ignored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class NamedKey(NamedTuple):
    name: str
    """For logs and limits; several keys may share it."""
    key: str


def read_key_file(path: Path) -> list[NamedKey]:
    """At least one key. Raises ConfigError, which names the line and shows no key."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"api_key_file: {path} is not readable: {reason}.") from None
    keys = [
        parse_line(path, number, line.split())
        for number, line in enumerate(lines, 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not keys:
        raise ConfigError(f"api_key_file: {path} has no key. Write one per line, or leave the option out.")
    if len({key.key for key in keys}) < len(keys):
        raise ConfigError(f"api_key_file: {path} has a key twice. Remove one of the lines.")
    return keys


def parse_line(path: Path, number: int, words: list[str]) -> NamedKey:
    if len(words) == 1:
        return NamedKey(f"line-{number}", words[0])
    if len(words) == 2 and NAME.fullmatch(words[0]):
        return NamedKey(*words)
    raise ConfigError(
        f"api_key_file: line {number} of {path} is neither KEY nor NAME KEY. A name has at most 64 letters, digits, "
        "points, hyphens or underscores; a key has no blanks."
    )
