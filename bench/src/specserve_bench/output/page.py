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
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--grid); text-align: right; font-weight: normal; }
th { color: var(--faint); } td:first-child, th:first-child { text-align: left; }
.scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; } svg text { font-family: system-ui, sans-serif; }
pre { overflow-x: auto; border: 1px solid var(--grid); padding: .75rem; }
"""


class Table(NamedTuple):
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


class Plot(NamedTuple):
    svg: str

    def html(self) -> str:
        return self.svg


class Text(NamedTuple):
    text: str

    def html(self) -> str:
        return f"<p>{escape(self.text)}</p>"


class Code(NamedTuple):
    text: str

    def html(self) -> str:
        return f"<pre>{escape(self.text)}</pre>"


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
        f"<title>{escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>\n{body}\n"
        "</body>\n</html>\n"
    )
