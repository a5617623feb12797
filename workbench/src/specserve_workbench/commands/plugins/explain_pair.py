"""`specserve plugins explain`: whether two plugins, or a plugin and a feature, work together, and who declares it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import PluginError
from specserve.plugins.features import FEATURES, needs_no_declaration
from specserve.plugins.loaded_declaration import load_declaration
from specserve.plugins.rules import judge_core_feature, missing_declarations
from specserve.plugins.verdicts import advice, statement_line, verdict
from specserve_checks.nearest import did_you_mean
from specserve_workbench.commands.plugins.json_output import finding_entry, print_json
from specserve_workbench.commands.plugins.pairs import engine_config, pair_finding

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration
    from specserve.plugins.findings import Finding


def explain_pair(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    left, right = args.left, args.right
    if left not in installed and right in installed:
        left, right = right, left
    finding = find_pair(args, left, right, installed)
    if args.json:
        print_json(finding_entry(finding))
    else:
        print("\n".join(explanation(finding, installed)))
    return 1 if finding.kind == "undeclared" else 0


def find_pair(args: Namespace, left: str, right: str, installed: Mapping[str, PluginDeclaration]) -> Finding:
    if left == right:
        raise PluginError(f"explain needs two different names; got {left} twice.")
    for name in (left, right):
        if name not in installed and name not in FEATURES:
            known = [*installed, *FEATURES]
            raise PluginError(
                f"{name!r} is neither an installed plugin nor a feature{did_you_mean(name, known)} "
                f"(installed: {', '.join(installed) or 'none'}; features: {', '.join(FEATURES)})."
            )
    if left not in installed:
        raise PluginError(f"{left} and {right} are both features; one of the two must be an installed plugin.")
    if right in installed:
        return pair_finding(installed[left], installed[right], engine_config(args, plugins=(left, right)))
    return feature_finding(installed[left], right, engine_config(args, plugins=(left,)))


def feature_finding(declaration: PluginDeclaration, token: str, config: EngineConfig) -> Finding:
    """A plugin and a feature, as if the feature were in effect."""
    if token.startswith("graph."):
        config = msgspec.structs.replace(config, graphs=token.removeprefix("graph."))
    member = load_declaration(declaration, config)
    finding = judge_core_feature(member, token, frozenset((declaration.name, *member.features, token)), config)
    if needs_no_declaration(token) or finding.statements:
        return finding
    return msgspec.structs.replace(finding, kind="undeclared", missing=tuple(missing_declarations(member, [token])))


def explanation(finding: Finding, installed: Mapping[str, PluginDeclaration]) -> list[str]:
    lines = [verdict(finding)]
    for name in (finding.left, finding.right):
        if name in installed:
            provides = ", ".join(installed[name].provides)
            lines.append(f"{name} ({installed[name].dist} {installed[name].version}) provides {provides}.")
        else:
            lines.append(f"{name}: {FEATURES[name]}.")
    if finding.meets:
        lines.append("Features that meet: " + ", ".join(f"{a} with {b}" for a, b in finding.meets) + ".")
    lines += [f"Declared in {statement_line(statement)}" for statement in finding.statements]
    if not finding.statements:
        lines.append("No declaration of either names the other.")
    return lines if finding.kind == "compatible" else [*lines, advice(finding)]
