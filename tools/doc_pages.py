"""The pages of the docs, in the groups of docs/README.md, and the files beside them to which they link.

docs/README.md is the one place that says which pages there are: the site's navigation is made of it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markdown_links import links

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[1]
INDEX = Path("docs/README.md")
FRONT = Path("README.md")


class Page(NamedTuple):
    title: str
    path: Path
    """Relative to the repository, as all paths here."""


def groups(index: str) -> dict[str, list[Page]]:
    """The index's headings of second order, with the pages whose links begin a row of the table below."""
    sections = re.split(r"^## (.+)$", index, flags=re.MULTILINE)[1:]
    return {title: rows(text) for title, text in zip(sections[::2], sections[1::2], strict=True)}


def rows(section: str) -> list[Page]:
    found = re.findall(r"^\| \[([^\]]+)\]\(([^)#]+)\)", section, flags=re.MULTILINE)
    return [Page(title, relative(INDEX.parent / path)) for title, path in found]


def reachable(start: Iterable[Path]) -> set[Path]:
    """`start` and every file of the repository to which those lead, pages of pages included."""
    found: set[Path] = set()
    waiting = list(start)
    while waiting:
        path = waiting.pop()
        if path not in found and (ROOT / path).is_file():
            found.add(path)
            if path.suffix == ".md":
                waiting += [relative(path.parent / link.path) for link in links((ROOT / path).read_text()) if link.path]
    return found


def relative(path: Path) -> Path:
    """Without `..`, within the repository."""
    return (ROOT / path).resolve().relative_to(ROOT)
