"""Headings, links and pictures of a Markdown page, as a code host reads them; nothing of the site of `make docs`."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FENCED = re.compile(r"^( *)(`{3,}|~{3,}).*?^ *\2[`~]*$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`)(?:(?!\n\n).)*?(?<!`)\1(?!`)", re.DOTALL)  # within one paragraph
LINK = re.compile(
    r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=\"([^\"]+)\""
)
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$", re.MULTILINE)
ANCHOR = re.compile(r"<[a-z]+\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")


class Link(NamedTuple):
    """A link's target: `path` is relative to the page and empty for the page itself; no `anchor` is an empty one."""

    path: str
    anchor: str


def links(text: str) -> Iterator[Link]:
    """Links and pictures of a page, without those to other hosts. Code has none."""
    prose = CODE.sub("`code`", FENCED.sub("", text))
    for match in LINK.finditer(prose):
        target = match[1] or match[2]
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield Link(path, anchor)


def anchors(text: str) -> set[str]:
    """What links to a page may name behind their #: headings by GitHub's rule, and ids of elements."""
    prose = FENCED.sub("", text)
    seen: Counter[str] = Counter()
    found = set(ANCHOR.findall(prose))
    for heading in HEADING.findall(prose):
        slug = slug_of(heading)
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def slug_of(heading: str) -> str:
    """A heading's anchor on GitHub: in lower case, without punctuation, and with a hyphen for each blank."""
    shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


def broken_links(page: Path) -> list[str]:
    """Each link of the page whose file or heading does not exist, with what is missing."""
    return [
        f"{path}#{anchor}: no such {missing}"
        for path, anchor in links(page.read_text())
        if (missing := what_misses(page.parent / path if path else page, anchor))
    ]


def what_misses(target: Path, anchor: str) -> str:
    if not target.exists():
        return "file"
    if anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
        return "heading"
    return ""
