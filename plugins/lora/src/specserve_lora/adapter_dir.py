"""The directory that an adapter is read from, and the files in it.

Owns what may be opened: regular files, and inside the root where a client named the directory. Symbolic links in the
directory are resolved before this check.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specserve.api.files import expand_user, resolve, resolve_inside
from specserve_lora.errors import AdapterError, RoutesDisabledError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
ROOT = "lora.root"


@dataclass(frozen=True, slots=True)
class AdapterDir:
    """`path` is resolved; `label` is the path as it was given, for error messages."""

    path: Path
    label: str
    root: Path | None
    """None: files may be anywhere."""

    def open(self, name: str) -> BinaryIO:
        path, source = self.file_path(name), self.source(name)
        try:
            if not path.exists():
                raise AdapterError(f"there is no file {source}{self.hint(name)}", param="lora_path")
            if not path.is_file():  # reading a pipe could block for ever
                raise AdapterError(f"{source} is not a regular file.", param="lora_path")
            return path.open("rb")
        except OSError as error:
            raise AdapterError(f"{source} cannot be read: {error.strerror}.", param="lora_path") from None

    def file_path(self, name: str) -> Path:
        path = self.path / name
        if self.root is None:
            return resolve(path, param="lora_path")
        return resolve_inside(path, self.root, ROOT, param="lora_path")

    def source(self, name: str) -> str:
        """The file's path in error messages."""
        return f"{self.label[:300]}/{name}"

    def hint(self, name: str) -> str:
        if name == WEIGHTS and (self.path / PICKLE).exists():
            return (
                f". {PICKLE} is a pickle, which runs code of whoever wrote it and is never read: save the adapter with "
                "safe_serialization=True."
            )
        return ". An adapter is a directory that PEFT's save_pretrained wrote."


def unconfined_dir(path: str) -> AdapterDir:
    """A directory that the operator names: anywhere, relative to the working directory."""
    return checked_dir(resolve(expand_user(path, param="lora_path")), path, None)


def confined_dir(path: str, root: Path | None) -> AdapterDir:
    """A directory that a client names: inside the root."""
    return checked_dir(resolve_inside(path, require_root(root), ROOT, param="lora_path"), path, root)


def require_root(root: Path | None) -> Path:
    """The root. RoutesDisabledError where the operator has set none."""
    if root is None:
        raise RoutesDisabledError(
            "this server neither loads nor unloads adapters for clients. Start it with --set lora.root=DIR to have it "
            "load those in DIR."
        )
    return root


def checked_dir(path: Path, label: str, root: Path | None) -> AdapterDir:
    try:
        if path.is_dir():
            return AdapterDir(path, label, root)
        problem = f"{label[:300]!r} is a file" if path.exists() else f"there is no directory {label[:300]!r}"
    except OSError as error:
        problem = f"{label[:300]!r} cannot be read: {error.strerror}"
    raise AdapterError(f"{problem}; name the directory that has {CONFIG} and {WEIGHTS}.", param="lora_path")
