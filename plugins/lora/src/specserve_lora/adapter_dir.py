"""The directory that an adapter is read from, and the files in it.

Owns what may be opened: regular files, and inside the root where a client named the directory. A link in the
directory is followed and held to the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.confine import confined, expanded, resolved
from specserve_lora.errors import AdapterError, RoutesClosedError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
ROOT = "lora.root"


@dataclass(frozen=True, slots=True)
class Place:
    """`directory` has no links; `label` is what was asked for."""

    directory: Path
    label: str
    root: Path | None
    """None: files may lie anywhere."""

    def open(self, name: str) -> BinaryIO:
        path, where = self.path(name), self.where(name)
        try:
            if not path.exists():
                raise AdapterError(f"there is no file {where}{self.hint(name)}", param="lora_path")
            if not path.is_file():  # a pipe would never end
                raise AdapterError(f"{where} is not a regular file.", param="lora_path")
            return path.open("rb")
        except OSError as error:
            raise AdapterError(f"{where} cannot be read: {error.strerror}.", param="lora_path") from None

    def path(self, name: str) -> Path:
        path = self.directory / name
        if self.root is None:
            return resolved(path, param="lora_path")
        return confined(path, self.root, ROOT, param="lora_path")

    def where(self, name: str) -> str:
        return f"{self.label[:300]}/{name}"

    def hint(self, name: str) -> str:
        if name == WEIGHTS and (self.directory / PICKLE).exists():
            return (
                f". {PICKLE} is a pickle, which runs code of whoever wrote it and is never read: save the adapter with "
                "safe_serialization=True."
            )
        return ". An adapter is a directory that PEFT's save_pretrained wrote."


def given_place(path: str) -> Place:
    """A directory that the operator names: anywhere, relative to the working directory."""
    return place_at(resolved(expanded(path, param="lora_path")), path, None)


def confined_place(path: str, root: Path | None) -> Place:
    """A directory that a client names: inside the root."""
    return place_at(confined(path, open_root(root), ROOT, param="lora_path"), path, root)


def open_root(root: Path | None) -> Path:
    """The root, where the operator has opened REST with one."""
    if root is None:
        raise RoutesClosedError(
            "this server neither loads nor unloads adapters for clients. Start it with --set lora.root=DIR to have it "
            "load those in DIR."
        )
    return root


def place_at(directory: Path, label: str, root: Path | None) -> Place:
    try:
        if directory.is_dir():
            return Place(directory, label, root)
        problem = f"{label[:300]!r} is a file" if directory.exists() else f"there is no directory {label[:300]!r}"
    except OSError as error:
        problem = f"{label[:300]!r} cannot be read: {error.strerror}"
    raise AdapterError(f"{problem}; name the directory that has {CONFIG} and {WEIGHTS}.", param="lora_path")
