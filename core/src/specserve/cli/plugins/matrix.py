"""`specserve plugins matrix`: every installed plugin against every other, and against the core's features."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from specserve.cli.plugins.explain_pair import feature_finding
from specserve.cli.plugins.json_output import finding_entry, print_json
from specserve.cli.plugins.pairs import engine_config, pair_finding
from specserve.plugins.features import CORE_FEATURES
from specserve.plugins.verdicts import verdict

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from specserve.declare import PluginDeclaration
    from specserve.plugins.findings import Finding

WORDS = {"compatible": "works", "conflict": "refused", "undeclared": "undeclared"}
HEADING = """# What works with what

Every plugin of this repository beside every other, and with the features of the core, as they declare it. Written by
`specserve plugins matrix --markdown`; for one pair ask `specserve plugins explain A B`. The conformance kit,
`pytest --specserve-plugin NAME` ([plugins.md](plugins.md#prove)), proves what a plugin declares, and runs in the tests
of this repository.
"""


class Matrix(NamedTuple):
    """`pairs`: by the names of two plugins, both ways round. `core`: by a plugin's name and a feature's."""

    names: list[str]
    pairs: dict[tuple[str, str], Finding]
    core: dict[tuple[str, str], Finding]


def show_matrix(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    """Raises PluginError for a declaration that cannot be used."""
    matrix = matrix_of(args, installed)
    if args.json:
        print_json([finding_entry(finding) for finding in findings(matrix)])
    elif args.markdown:
        print(page(matrix), end="")
    else:
        print("\n".join(aligned(rows(matrix))))
    return 0


def matrix_of(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> Matrix:
    pairs = {}
    for (a, left), (b, right) in itertools.combinations(installed.items(), 2):
        pairs[a, b] = pairs[b, a] = pair_finding(left, right, engine_config(args, plugins=(a, b)))
    core = {
        (name, token): feature_finding(declaration, token, engine_config(args, plugins=(name,)))
        for name, declaration in installed.items()
        for token in CORE_FEATURES
    }
    return Matrix(list(installed), pairs, core)


def findings(matrix: Matrix) -> list[Finding]:
    """Each once."""
    return [*(matrix.pairs[pair] for pair in itertools.combinations(matrix.names, 2)), *matrix.core.values()]


def rows(matrix: Matrix) -> list[list[str]]:
    table = [["", *matrix.names]]
    for name in matrix.names:
        table.append([name, *(word(matrix.pairs.get((name, other))) for other in matrix.names)])
    for token in CORE_FEATURES:
        table.append([token, *(word(matrix.core[name, token]) for name in matrix.names)])
    return table


def word(finding: Finding | None) -> str:
    return "-" if finding is None else WORDS[finding.kind]


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]


def page(matrix: Matrix) -> str:
    heading, *lines = rows(matrix)
    table = [markdown_row(heading), markdown_row(["---"] * len(heading)), *map(markdown_row, lines)]
    said = [finding for finding in findings(matrix) if finding.statements or finding.kind != "compatible"]
    reasons = [f"- {verdict(finding)}" for finding in said]
    return "\n".join([HEADING, *table, "", "## Why", "", *reasons, ""])


def markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
