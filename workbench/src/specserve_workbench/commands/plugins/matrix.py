"""`specserve plugins matrix`: every installed plugin against every other, and against the core's features."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.plugins.features import CORE_FEATURES
from specserve.plugins.rules import resolve
from specserve_workbench.commands.plugins.explain_pair import feature_finding
from specserve_workbench.commands.plugins.json_output import finding_entry, print_json
from specserve_workbench.commands.plugins.matrix_pages import html_page, markdown_page
from specserve_workbench.commands.plugins.pairs import engine_config, pair_finding
from specserve_workbench.commands.plugins.proofs import read_proofs

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping, Sequence

    from specserve.declare import PluginDeclaration
    from specserve.plugins.findings import Finding
    from specserve_workbench.commands.plugins.proofs import Proof

WORDS = {"compatible": "works", "conflict": "refused", "undeclared": "undeclared"}


class Matrix(NamedTuple):
    """`pairs`: by the names of two plugins, both ways round. `core`: by a plugin's name and a feature's. The same keys
    have the proofs."""

    names: list[str]
    off: dict[str, str]
    """Plugins that provide nothing under this configuration, such as kernels of another device, with the reason. They
    are in no line."""
    pairs: dict[tuple[str, str], Finding]
    core: dict[tuple[str, str], Finding]
    proofs: dict[tuple[str, str], Proof]

    def word(self, key: tuple[str, str]) -> str:
        finding = self.pairs.get(key) or self.core.get(key)
        if finding is None:
            return "-"
        return "proven" if finding.kind == "compatible" and key in self.proofs else WORDS[finding.kind]


def show_matrix(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    """Raises PluginError for a declaration that cannot be used."""
    matrix = matrix_of(args, installed)
    if args.json:
        found = with_proofs(matrix)
        print_json([{**finding_entry(finding), "proof": msgspec.to_builtins(proof)} for finding, proof in found])
    elif args.markdown or args.html:
        write = markdown_page if args.markdown else html_page
        findings = [finding for finding, _ in with_proofs(matrix)]
        print(write(rows(matrix), left_out(matrix), tests(matrix), findings), end="")
    else:
        print("\n".join([*aligned(rows(matrix)), *left_out(matrix)]))
    return 0


def matrix_of(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> Matrix:
    off = plugins_that_are_off(args, installed)
    installed = {name: declaration for name, declaration in installed.items() if name not in off}
    pairs: dict[tuple[str, str], Finding] = {}
    proven: dict[tuple[str, str], Proof | None] = {}
    proofs = read_proofs(args.proofs)
    defaults = frozenset(name for name, declaration in installed.items() if declaration.default_on)
    for (a, left), (b, right) in itertools.combinations(installed.items(), 2):
        pairs[a, b] = pairs[b, a] = pair_finding(left, right, engine_config(args, plugins=(a, b)))
        proven[a, b] = proven[b, a] = proofs.of_pair(a, b, defaults)
    core = {}
    for name, declaration in installed.items():
        for token in CORE_FEATURES:
            core[name, token] = feature_finding(declaration, token, engine_config(args, plugins=(name,)))
            proven[name, token] = proofs.of_feature(name, token)
    return Matrix(list(installed), off, pairs, core, {key: proof for key, proof in proven.items() if proof is not None})


def plugins_that_are_off(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> dict[str, str]:
    off = {}
    for name, declaration in installed.items():
        (plugin,) = resolve([declaration], engine_config(args, plugins=(name,))).plugins
        if plugin.features_off and not plugin.features:
            off[name] = "; ".join(dict.fromkeys(plugin.features_off.values()))
    return off


def left_out(matrix: Matrix) -> list[str]:
    """A sentence for each plugin that is in no line."""
    return [f"{name} is left out: {reason}." for name, reason in matrix.off.items()]


def with_proofs(matrix: Matrix) -> list[tuple[Finding, Proof | None]]:
    """Each finding once."""
    pairs = {pair: matrix.pairs[pair] for pair in itertools.combinations(matrix.names, 2)}
    return [(finding, matrix.proofs.get(key)) for key, finding in {**pairs, **matrix.core}.items()]


def tests(matrix: Matrix) -> list[Proof]:
    """Those that prove something, each once."""
    return list(dict.fromkeys(proof for _, proof in with_proofs(matrix) if proof is not None))


def rows(matrix: Matrix) -> list[list[str]]:
    table = [["", *matrix.names]]
    for name in matrix.names:
        table.append([name, *(matrix.word((name, other)) for other in matrix.names)])
    for token in CORE_FEATURES:
        table.append([token, *(matrix.word((name, token)) for name in matrix.names)])
    return table


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
