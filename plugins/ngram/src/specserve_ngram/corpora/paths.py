"""The source of a corpus by path: which files are corpora, and which of them clients may have read.

That clients stay inside the corpus root is the core's check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.api.files import OutsideRootError, expand_user, resolve, resolve_inside
from specserve_ngram.corpora.documents import JsonLines, TextFile
from specserve_ngram.corpora.errors import CorpusError

if TYPE_CHECKING:
    from pathlib import Path

    from specserve_ngram.corpora.documents import Source

ROOT = "ngram.corpus_root"


def operator_source(path: str) -> Source:
    """A file that the operator names: anywhere; relative paths start at the working directory."""
    return source_at(resolve(expand_user(path, param="path"), param="path"), path)


def client_source(path: str, root: Path | None) -> Source:
    """A file that a client names, inside the root and relative to it. Symbolic links are resolved first."""
    if root is None:
        raise OutsideRootError(
            "this server reads no files for clients. Send documents, or start it with --set ngram.corpus_root=DIR.",
            param="path",
        )
    return source_at(resolve_inside(path, root, ROOT, param="path"), path)


def source_at(path: Path, label: str) -> Source:
    """`path` is resolved, `label` is what was asked for."""
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
