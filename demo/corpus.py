"""The training text of the demo model: the Python standard library's own source.

Owns which files are read and which fixed 5 % are held out; knows nothing about tokens or models.
"""

from __future__ import annotations

import sysconfig
import zlib
from pathlib import Path
from typing import NamedTuple

HELD_OUT_ONE_IN = 20


class Corpus(NamedTuple):
    """Source texts, in a fixed order."""

    train: list[str]
    held_out: list[str]


def read_corpus() -> Corpus:
    """Read every UTF-8 source file of this interpreter's standard library, tests included.

    A file is held out when the CRC-32 of its path inside the library is divisible by 20, so the split
    is the same wherever the same Python version is installed.
    """
    root = Path(sysconfig.get_path("stdlib"))
    train: list[str] = []
    held_out: list[str] = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith("site-packages/") or "__pycache__" in name:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # deliberately broken files of the standard library's own test suite
        if not text.strip():
            continue
        side = held_out if zlib.crc32(name.encode()) % HELD_OUT_ONE_IN == 0 else train
        side.append(text)
    return Corpus(train, held_out)
