"""What is made once and kept: a folder with a stamp that says of what."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def once(folder: Path, recipe: Sequence[object], make: Callable[[], None]) -> None:
    """Calls `make`, with the folder empty, unless it was made of the same recipe."""
    stamp, wanted = folder.parent / f"{folder.name}.made", repr([*map(str, recipe)])
    if folder.exists() and stamp.exists() and stamp.read_text() == wanted:
        return
    stamp.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    make()
    stamp.write_text(wanted)


def contents(*paths: Path) -> str:
    """A hash of files, and of all files of folders."""
    key = hashlib.sha256()
    for path in sorted(each for given in paths for each in (given, *given.rglob("*")) if each.is_file()):
        key.update(str(path).encode() + b"\0" + path.read_bytes())
    return key.hexdigest()
