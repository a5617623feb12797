"""A report: one HTML file that needs no other, light or dark as the reader's system is."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

STYLE = """\
:root { color-scheme: light dark; --ink: #1f2328; --paper: #ffffff; --grid: #d0d7de; --faint: #59636e;
  --series-1: #1f6feb; --series-2: #d1242f; --series-3: #1a7f37; --series-4: #8250df; --series-5: #bc4c00;
  --series-6: #0a7a82; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --grid: #3d444d; --faint: #9198a1;
  --series-1: #58a6ff; --series-2: #ff7b72; --series-3: #3fb950; --series-4: #bc8cff; --series-5: #f0883e;
  --series-6: #39c5cf; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 60rem;
  margin: 2rem auto; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1.2rem .25rem 0; border-bottom: 1px solid var(--grid); text-align: left; font-weight: normal;
  vertical-align: top; }
th { color: var(--faint); } .number { text-align: right; }
.wide { overflow-x: auto; margin: 0 0 1.25rem; } .wide:focus-visible { outline: 2px solid var(--series-1); }
svg { display: block; width: 36rem; height: auto; } svg text { font-family: system-ui, sans-serif; }
pre { border: 1px solid var(--grid); padding: .75rem; }
"""


class Table(NamedTuple):
    """`name`: what it shows, for those who do not see it. Without column titles it has no row for them."""

    name: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        kinds = [kind_of([row[at] for row in self.rows]) for at in range(len(self.columns))]
        titles = "".join(map(column_title, self.columns, kinds))
        head = f"<thead><tr>{titles}</tr></thead>" if any(self.columns) else ""
        body = "".join(f"<tr>{''.join(map(cell, row, kinds))}</tr>" for row in self.rows)
        return wide(self.name, f"<table>{head}<tbody>{body}</tbody></table>")


def kind_of(column: Sequence[str]) -> str:
    """Numbers, with their units, are aligned to the right."""
    return ' class="number"' if all(each[:1].isdigit() for each in column if each) else ""


def column_title(text: str, kind: str) -> str:
    return f'<th scope="col"{kind}>{escape(text)}</th>'


def cell(text: str, kind: str) -> str:
    return f"<td{kind}>{escape(text)}</td>"


def wide(name: str, content: str, tag: str = "div") -> str:
    """What is wider than a small screen is moved within its own box, with the keyboard, too."""
    return f'<{tag} class="wide" role="region" aria-label="{escape(name)}" tabindex="0">{content}</{tag}>'


class Plot(NamedTuple):
    name: str
    svg: str

    def html(self) -> str:
        return wide(self.name, self.svg.replace("<svg ", f'<svg role="img" aria-label="{escape(self.name)}" ', 1))


class Text(NamedTuple):
    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"


class Code(NamedTuple):
    name: str
    text: str

    def html(self) -> str:
        return wide(self.name, escape(self.text), "pre")


class Section(NamedTuple):
    title: str
    parts: Sequence[Table | Plot | Text | Code]

    def html(self) -> str:
        return f"<h2>{escape(self.title)}</h2>\n" + "\n".join(part.html() for part in self.parts)


def page(title: str, sections: Sequence[Section]) -> str:
    body = "\n".join(section.html() for section in sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
