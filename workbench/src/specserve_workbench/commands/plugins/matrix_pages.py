"""A matrix of plugins as a page, in Markdown or HTML: the table, what was proven by which test, and the reasons."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from specserve.plugins.verdicts import verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specserve.plugins.findings import Finding
    from specserve_workbench.commands.plugins.proofs import Proof

HEADING = """# What works with what

Every installed plugin beside every other, and with the features of the core. *Proven*: declared, and proven by the test
of the conformance kit that is listed below with what it saw ([plugins.md](plugins.md#prove)); for the plugins of this
repository `tests/plugins/test_conformance.py` runs the same tests again. *Works*: declared. For one pair ask
`specserve plugins explain A B`. `make pages` writes this page, `make proofs` runs the kit before.
"""
STYLE = (
    "table { border-collapse: collapse } td { border: 1px solid #999; padding: 0.3em 0.6em } "
    ".proven { background: #bfb } .refused, .undeclared { background: #fbb }"
)


def markdown_page(
    table: Sequence[Sequence[str]], left_out: Sequence[str], proofs: Sequence[Proof], findings: Sequence[Finding]
) -> str:
    heading, *lines = table
    parts = [HEADING, markdown_row(heading), markdown_row(["---"] * len(heading)), *map(markdown_row, lines), ""]
    parts += [*left_out, ""] if left_out else []
    if proofs:
        tests = [[f"`{proof.plugin}: {proof.what}`", proof.detail] for proof in proofs]
        parts += ["## Proofs", "", *map(markdown_row, (["test", "what it saw"], ["---", "---"], *tests)), ""]
    return "\n".join([*parts, "## Why", "", *(f"- {reason}" for reason in reasons(findings)), ""])


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def html_page(
    table: Sequence[Sequence[str]], left_out: Sequence[str], proofs: Sequence[Proof], findings: Sequence[Finding]
) -> str:
    rows = "\n".join(f"<tr>{''.join(map(html_cell, row))}</tr>" for row in table)
    others = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in left_out)
    tests = "\n".join(f"<li>{escape(f'{proof.plugin}: {proof.what}: {proof.detail}')}</li>" for proof in proofs)
    why = "\n".join(f"<li>{escape(reason)}</li>" for reason in reasons(findings))
    return (
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n<title>What works with what</title>\n"
        f"<style>{STYLE}</style>\n"
        f"<h1>What works with what</h1>\n<table>\n{rows}\n</table>\n{others}"
        f"<h2>Proofs</h2>\n<ul>\n{tests}\n</ul>\n<h2>Why</h2>\n<ul>\n{why}\n</ul>\n</html>\n"
    )


def html_cell(cell: str) -> str:
    return f'<td class="{escape(cell)}">{escape(cell)}</td>'


def reasons(findings: Sequence[Finding]) -> list[str]:
    return [verdict(finding) for finding in findings if finding.statements or finding.kind != "compatible"]
