"""Which releases and files the traces are made of, pinned, so that every machine replays the same texts.

Where a table names no files, `texts` picks them by the CRC-32 of their paths, so the choice favours no drafter.
"""

from __future__ import annotations

from typing import NamedTuple


class EditPair(NamedTuple):
    """Two releases of one package; an edit turns a file of the old one into that of the new one."""

    package: str
    old: str
    new: str


class Question(NamedTuple):
    """A document, a question about it, and a text by the same authors that serves as the answer."""

    package: str
    version: str
    document: str
    question: str
    answer: str
    heading: str = ""
    """If set, only the section that begins with this heading, of document and answer."""


class Page(NamedTuple):
    package: str
    version: str
    path: str


FILES_PER_PACKAGE = 2

EDITS = (
    EditPair("flask", "2.2.5", "2.3.3"),
    EditPair("click", "8.1.8", "8.2.1"),
    EditPair("httpx", "0.27.2", "0.28.1"),
    EditPair("networkx", "3.3", "3.4.2"),
    EditPair("rich", "13.7.1", "13.9.4"),
    EditPair("trio", "0.26.2", "0.27.0"),
)

CODE = (
    ("pygments", "2.18.0"),
    ("pytest", "8.3.4"),
    ("tqdm", "4.67.1"),
    ("parso", "0.8.4"),
    ("celery", "5.4.0"),
    ("marshmallow", "3.26.1"),
)

HOW = "How is this module used? Explain it to a user of the package."
NEWS = "What is new in this release? Summarise the history above for users."

QUESTIONS = (
    Question("starlette", "0.41.3", "starlette/config.py", HOW, "docs/config.md"),
    Question("starlette", "0.41.3", "starlette/authentication.py", HOW, "docs/authentication.md"),
    Question("starlette", "0.41.3", "starlette/endpoints.py", HOW, "docs/endpoints.md"),
    Question("packaging", "24.2", "src/packaging/tags.py", HOW, "docs/tags.rst"),
    Question("packaging", "24.2", "src/packaging/utils.py", HOW, "docs/utils.rst"),
    Question("structlog", "24.4.0", "src/structlog/contextvars.py", HOW, "docs/contextvars.md"),
    Question("jinja2", "3.1.6", "src/jinja2/sandbox.py", HOW, "docs/sandbox.rst"),
    Question("tenacity", "9.0.0", "tenacity/wait.py", HOW, "README.rst"),
    Question("docutils", "0.21.2", "HISTORY.txt", NEWS, "RELEASE-NOTES.txt", "Release 0.21 "),
    Question("docutils", "0.21.2", "HISTORY.txt", NEWS, "RELEASE-NOTES.txt", "Release 0.19 "),
    Question("docutils", "0.21.2", "HISTORY.txt", NEWS, "RELEASE-NOTES.txt", "Release 0.17 "),
    Question("docutils", "0.21.2", "HISTORY.txt", NEWS, "RELEASE-NOTES.txt", "Release 0.16 "),
)

PROSE = (
    Page("flask", "2.3.3", "docs/design.rst"),
    Page("attrs", "25.3.0", "docs/why.md"),
    Page("attrs", "25.3.0", "docs/names.md"),
    Page("trio", "0.27.0", "docs/source/design.rst"),
    Page("click", "8.1.8", "docs/why.rst"),
    Page("click", "8.1.8", "docs/unicode-support.rst"),
    Page("structlog", "24.4.0", "docs/why.md"),
    Page("structlog", "24.4.0", "docs/logging-best-practices.md"),
    Page("black", "24.10.0", "docs/faq.md"),
    Page("black", "24.10.0", "docs/the_black_code_style/current_style.md"),
    Page("jinja2", "3.1.6", "docs/faq.rst"),
    Page("docutils", "0.21.2", "docs/peps/pep-0256.txt"),
)
