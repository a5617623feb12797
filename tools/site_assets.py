"""What a built page fetches by itself: scripts, styles, pictures, fonts. None may come from another host.

Links that a reader follows may lead anywhere; the theme's own script names hosts of features that no page of ours uses.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FETCHED = {"src", "srcset", "poster", "data"}
NOT_FETCHED = {"canonical", "prev", "next", "alternate", "edit"}
"""Relations of `<link>` that only tell."""


class Fetches(HTMLParser):
    """Collects, while it is fed, the addresses that a browser loads with the page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.in_style = tag == "style"
        self.found += [value for name, value in given.items() if name in FETCHED]
        self.found += of_style(given.get("style", ""))
        if tag in {"image", "use"}:
            self.found += [given.get("href", ""), given.get("xlink:href", "")]
        if tag == "link" and not NOT_FETCHED & set(given.get("rel", "").split()):
            self.found.append(given.get("href", ""))

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.found += of_style(data)


def of_style(text: str) -> list[str]:
    """The addresses of a style sheet: `url(...)` and `@import`."""
    return re.findall(r"(?:url\(\s*|@import\s+(?!url))['\"]?([^'\")\s;]+)", text)


def external_assets(site: Path) -> Iterator[str]:
    """`FILE: ADDRESS` of each asset of the site that another host would serve."""
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".svg"}:
            parser = Fetches()
            parser.feed(path.read_text())
            addresses = parser.found
        elif path.suffix == ".css":
            addresses = of_style(path.read_text())
        else:
            continue
        yield from (f"{path.relative_to(site)}: {each}" for each in addresses if re.match(r"(?:[a-z]+:)?//", each))
