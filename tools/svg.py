"""Elements of pictures for white and for black pages: the ground is transparent, colours are of middle lightness.

Lengths are pixels. Nothing here knows what a picture shows.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

INK = "#77797f"
"""Text: it differs from white as much as from the dark ground of code hosts, 4.3:1."""
FAINT = "#9a9ca366"
ON_CHIP = "#ffffff"
BLUE, AMBER, GREEN, GREY = "#2f6fd6", "#a86400", "#1f7f48", "#5d6068"
"""Grounds of white text, 4.5:1 or more."""
SANS = "system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def picture(width: float, height: float, title: str, elements: Iterable[str]) -> str:
    """A file: `title` is what readers hear who do not see it."""
    size = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}"'
    root = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{SANS}" font-size="14">'
    return "\n".join([root, f"<title>{escape(title)}</title>", *elements, "</svg>\n"])


def text(x: float, y: float, words: str, fill: str = INK, **style: str | float) -> str:
    """`y` is that of the baseline; `style` has attributes with _ for -."""
    return f'<text x="{x:g}" y="{y:g}" fill="{fill}"{attributes(style)}>{escape(words, quote=False)}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, **style: str | float) -> str:
    place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {place} fill="{fill}"{attributes(style)}/>'


def line(points: Iterable[tuple[float, float]], stroke: str = INK, **style: str | float) -> str:
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{stroke}"{attributes(style)}/>'


def attributes(style: dict[str, str | float]) -> str:
    shown = (
        (name.replace("_", "-"), f"{value:g}" if isinstance(value, float) else value) for name, value in style.items()
    )
    return "".join(f' {name}="{value}"' for name, value in shown)
