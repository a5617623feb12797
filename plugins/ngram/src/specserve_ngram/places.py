"""From a path to a source: what a client may have read, and what is a corpus at all.

Owns the corpus root. What is outside of it is refused before anybody looks whether it exists.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specserve.errors import ConfigError
from specserve_ngram.documents import JsonLines, TextFile
from specserve_ngram.errors import CorpusError, OutsideRootError

if TYPE_CHECKING:
    from specserve_ngram.documents import Source


def find_root(path: str | None) -> Path | None:
    """The option's directory, without links."""
    if path is None:
        return None
    try:
        root = resolved(Path(path))
    except CorpusError as error:
        raise ConfigError(f"ngram.corpus_root: {error}") from None
    if not root.is_dir():
        raise ConfigError(f"ngram.corpus_root = {path!r} is not a directory. Create it, or leave the option out.")
    return root


def given_source(path: str) -> Source:
    """A file that the operator names: anywhere, relative to the working directory."""
    return source_at(resolved(Path(path)), path)


def confined_source(path: str, root: Path | None) -> Source:
    """A file that a client names: inside the root, relative to it, links followed first."""
    if root is None:
        raise OutsideRootError(
            "this server reads no files for clients. Send documents, or start it with --set ngram.corpus_root=DIR.",
            param="path",
        )
    target = resolved(root / path)
    if not target.is_relative_to(root):
        raise OutsideRootError(f"{path!r} is not inside the corpus root. Name a file in it.", param="path")
    return source_at(target, path)


def source_at(path: Path, label: str) -> Source:
    """`path` is resolved, `label` what was asked for."""
    try:
        if path.is_dir():
            raise CorpusError(f"{label!r} is a directory. Name a .jsonl or a text file.", param="path")
        if not path.exists():
            raise CorpusError(f"there is no file {label!r}.", param="path")
        if not path.is_file():
            raise CorpusError(f"{label!r} is not a regular file.", param="path")
        return (JsonLines if path.suffix.lower() == ".jsonl" else TextFile)(path, label)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CorpusError(f"{label!r} cannot be read: {reason}.", param="path") from None


def resolved(path: Path) -> Path:
    """Absolute and without links. Only what begins with ~ has a home, so nothing that a client names."""
    try:
        return path.expanduser().resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a NUL, a loop of links, nobody's home
        raise CorpusError(f"{str(path)[:200]!r} is not a usable path: {error}.", param="path") from None
