"""The output directory of a run: made, checked to be writable, and told apart from that of another head.

`train_options.json` records what a checkpoint can only be resumed with.
"""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

from specserve.api import ConfigError
from specserve.api.files import read_optional_json
from specserve_eagle.training.loop import STATE_FILE
from specserve_eagle.training.options import flag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

IDENTITY_FILE = "train_options.json"


def prepare_folder(folder: Path) -> None:
    """Make the directory. ConfigError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = f"{error.strerror or error}. Choose another."
        raise ConfigError(f"--out {folder}: the directory cannot be written: {reason}") from None


def check_folder(folder: Path, identity: Mapping[str, object], unnamed: Mapping[str, object], *, resume: bool) -> None:
    """ConfigError where a run for a head of that identity may not write there. unnamed: see `refuse_another_head`."""
    if (folder / STATE_FILE).exists() and not resume:
        raise ConfigError(f"--out {folder} holds a checkpoint. Pass --resume to go on, or choose another --out.")
    if resume:
        refuse_another_head(folder, identity, unnamed)


def record_identity(folder: Path, identity: Mapping[str, object]) -> None:
    """Only once the checkpoint there, if any, has been read as one of that head."""
    write_atomically(folder / IDENTITY_FILE, lambda file: file.write_text(json.dumps(identity, indent=2) + "\n"))


def refuse_another_head(folder: Path, identity: Mapping[str, object], unnamed: Mapping[str, object]) -> None:
    """unnamed: what is meant by a name that the file lacks. A checkpoint without the file is judged by its tensors'
    shapes alone."""
    begun = read_optional_json(folder / IDENTITY_FILE)
    for name in {**begun, **identity} if begun else ():
        old, new = begun.get(name, unnamed.get(name)), identity.get(name, unnamed.get(name))
        if new != old:
            option = "--target (its numbers)" if name == "target" else flag(name)
            raise ConfigError(
                f"--resume: {folder} was begun with {option} {old}; got {new}. Give the same, or another --out."
            )


def write_atomically(file: Path, write: Callable[[Path], object]) -> None:
    """Readers see the old file or the new one, never a part."""
    partial = file.with_name(file.name + ".partial")
    write(partial)
    partial.replace(file)
