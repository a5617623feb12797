"""Files of results: checked before anything is measured, written behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


def check_files(*paths: Path | None) -> None:
    """ConfigError where one cannot be written; None is no file. What is there keeps its content, and nothing is left
    where nothing was."""
    for path in paths:
        if path is not None:
            is_new = not path.exists()
            write(path, "", "a")
            if is_new:
                path.unlink()


def write_file(path: Path, text: str) -> None:
    write(path, text, "w")


def write(path: Path, text: str, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ConfigError(f"bench: {path} cannot be written: {error.strerror}.") from None
