"""`specserve plugins check`: the named plugins as start-up would enable them, or every installed pair."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from specserve.errors import PluginError
from specserve.plugins.enabling import decide, find
from specserve.plugins.loaded_declaration import load_declaration
from specserve.plugins.rules import resolve
from specserve.plugins.verdicts import advice, verdict
from specserve_workbench.commands.plugins.json_output import finding_entry, print_json
from specserve_workbench.commands.plugins.pairs import engine_config, pair_finding

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration
    from specserve.plugins.findings import Finding


class Report(NamedTuple):
    """`broken`: by name, why a plugin's declaration cannot be used or the named plugins cannot be checked."""

    ok: bool
    findings: tuple[Finding, ...]
    broken: dict[str, str]
    switched_off: dict[str, str]


def check_plugins(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
    for name in args.names:
        find(name, installed)
    config = engine_config(args, plugins=tuple(args.names))
    report = check_named(config, installed) if args.names else check_all(config, installed)
    if args.json:
        broken, switched_off = report.broken, report.switched_off
        findings = [finding_entry(finding) for finding in report.findings]
        print_json({"ok": report.ok, "findings": findings, "broken": broken, "switched_off": switched_off})
    else:
        print_report(report)
    return 0 if report.ok else 1


def check_named(config: EngineConfig, installed: Mapping[str, PluginDeclaration]) -> Report:
    """The findings of start-up with exactly these plugins and the default ones."""
    try:
        decision = decide(config, installed)
    except PluginError as error:
        try:
            findings = resolve([installed[name] for name in config.plugins], config).findings
        except PluginError:  # a declaration cannot be used: there are no findings
            return Report(False, (), {", ".join(config.plugins): str(error)}, {})
        return Report(False, findings, {}, {})
    return Report(True, decision.resolution.findings, {}, decision.switched_off)


def check_all(config: EngineConfig, installed: Mapping[str, PluginDeclaration]) -> Report:
    """Every declaration by itself, then every pair. A declared conflict is no failure, an undeclared pair is one."""
    broken = {}
    for name, declaration in installed.items():
        try:
            load_declaration(declaration, config)
        except PluginError as error:
            broken[name] = str(error)
    usable = [declaration for name, declaration in installed.items() if name not in broken]
    findings = tuple(pair_finding(a, b, config) for a, b in itertools.combinations(usable, 2))
    return Report(not broken and all(f.kind != "undeclared" for f in findings), findings, broken, {})


def print_report(report: Report) -> None:
    for reason in report.broken.values():
        print(reason)
    for finding in report.findings:
        print(verdict(finding) if finding.kind == "compatible" else f"{verdict(finding)} {advice(finding)}")
    for name, reason in report.switched_off.items():
        print(f"{name} would be switched off: {reason}")
    print("ok." if report.ok else "not ok.")
