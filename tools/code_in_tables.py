"""An extension of Python-Markdown: `\\|` in the code of a table becomes a bar, as code hosts show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from markdown import Markdown


class CodeInTables(Treeprocessor):
    def run(self, root: Element) -> None:
        for table in root.iter("table"):
            for code in table.iter("code"):
                code.text = AtomicString((code.text or "").replace("\\|", "|"))


class CodeInTablesExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:
        md.treeprocessors.register(CodeInTables(md), "code_in_tables", 5)


def makeExtension(**options: object) -> CodeInTablesExtension:
    """Python-Markdown calls it."""
    return CodeInTablesExtension(**options)
