"""A directory in Hugging Face format for a GGUF file: what the file says in text, and a link to the file.

It is made once, in the user's cache; the name has everything that its contents depend on. Several processes may make
it at once. Imports no torch.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from specserve.api.files import user_cache
from specserve_gguf.architectures import architecture_of
from specserve_gguf.choosing import files_of
from specserve_gguf.describe import text_files
from specserve_gguf.model_file import open_files

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MARK = "config.json"
"""Written like the others; a directory is only there as a whole."""


def model_directory(path: Path) -> Path:
    """path: a GGUF file, or a directory with those of one model. Raises ModelError."""
    files = [file.absolute() for file in files_of(path)]
    name = f"{files[0].stem[:60]}-{fingerprint(files)}"
    try:
        made = user_cache("gguf") / name
        if (made / MARK).exists():
            return made
    except OSError:  # no home, or one that this user may not look into
        return for_this_process(name, files)
    contents = contents_of(files)
    try:
        made.parent.mkdir(parents=True, exist_ok=True)
        return put_in_place(contents, files, made)
    except OSError:  # a home without a place to write to
        return for_this_process(name, files)


def fingerprint(files: Sequence[Path]) -> str:
    """Of the files as they are now, and of this plugin's code."""
    told = [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    code = sorted((str(file), file.stat().st_mtime_ns) for file in Path(__file__).parent.rglob("*.py"))
    return hashlib.sha256(repr((told, code)).encode()).hexdigest()[:16]


def contents_of(files: Sequence[Path]) -> dict[str, bytes]:
    """The text files, by their names."""
    file = open_files(files)
    config = architecture_of(file).config()
    return {"config.json": json.dumps(config, indent=1).encode(), **text_files(file.metadata, files[0])}


def put_in_place(contents: Mapping[str, bytes], files: Sequence[Path], made: Path) -> Path:
    """Raises OSError."""
    with tempfile.TemporaryDirectory(dir=made.parent, prefix=".making-") as name:
        fill(Path(name, "model"), contents, files)
        try:
            Path(name, "model").rename(made)
        except OSError:
            if not (made / MARK).exists():  # else another process was first
                raise
    return made


def fill(directory: Path, contents: Mapping[str, bytes], files: Sequence[Path]) -> None:
    directory.mkdir()
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    for file in files:
        (directory / file.name).symlink_to(file)


@cache
def temporary_root() -> Path:
    root = Path(tempfile.mkdtemp(prefix="specserve-gguf-"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def for_this_process(name: str, files: Sequence[Path]) -> Path:
    """As `model_directory`, in a directory that is removed when the process ends. Raises OSError."""
    made = temporary_root() / name
    return made if made.exists() else put_in_place(contents_of(files), files, made)
