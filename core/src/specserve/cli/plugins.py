"""`specserve plugins`: what is installed, what can be enabled together, and why.

Owns the questions and the layout of the answers. Reads declarations only: no plugin is imported but its
`.compat` module, and neither torch nor the server.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from specserve.config import DEVICES, EngineConfig
from specserve.errors import PluginError
from specserve.plugins.discovery import discover
from specserve.plugins.enabling import decide, find
from specserve.plugins.error_text import did_you_mean
from specserve.plugins.features import FEATURES, needs_no_declaration
from specserve.plugins.loaded_declaration import load_declaration
from specserve.plugins.messages import advice, statement_line, verdict
from specserve.plugins.rules import judge_core_feature, missing_declaration_lines, resolve
from specserve.plugins.settings import parse_settings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace, _SubParsersAction
    from collections.abc import Mapping

    from specserve.declare import PluginDeclaration
    from specserve.plugins.findings import Finding

GRAPH_MODES = ("none", "full", "piecewise")


def register(subparsers: _SubParsersAction[ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "plugins",
        help="list plugins, and tell which work together",
        description="Answers from what plugins declare, without importing them.",
    )
    questions = parser.add_subparsers(title="questions", metavar="QUESTION", required=True)
    listing = questions.add_parser("list", help="installed plugins and their features")
    listing.set_defaults(run=run_list)
    check = questions.add_parser(
        "check", help="would start-up accept these plugins? Without names: every installed pair"
    )
    check.add_argument("names", nargs="*", metavar="NAME")
    check.set_defaults(run=run_check)
    explain = questions.add_parser("explain", help="do two plugins, or a plugin and a feature, work together, and why")
    explain.add_argument("left", metavar="A", help="a plugin or a feature token")
    explain.add_argument("right", metavar="B", help="a plugin or a feature token")
    explain.set_defaults(run=run_explain)
    for question in (check, explain):
        question.add_argument("--device", choices=DEVICES, default="cpu", help="default: cpu")
        question.add_argument("--graphs", choices=GRAPH_MODES, default="none", help="default: none")
        question.add_argument("--set", action="append", default=[], metavar="NAME.KEY=VALUE", help="an option")
    for question in (listing, check, explain):
        question.add_argument("--json", action="store_true", help="print JSON")


# --- list -----------------------------------------------------------------------------------------------


def run_list(args: Namespace) -> int:
    installed = discover()
    if args.json:
        print_json([list_entry(declaration) for declaration in installed.values()])
        return 0
    if not installed:
        print("no plugin is installed.")
    width = max((len(name) for name in installed), default=0)
    for name, declaration in installed.items():
        default = "  (on by default)" if declaration.default_on else ""
        features = ", ".join(declaration.provides) or "no features"
        print(f"{name:<{width}}  {declaration.version:<8} {declaration.dist}: {features}{default}")
        for problem in declaration.problems:
            print(f"{'':<{width}}  problem: {problem}")
    return 0


def list_entry(declaration: PluginDeclaration) -> dict[str, Any]:
    return {
        "name": declaration.name,
        "version": declaration.version,
        "api": declaration.api,
        "distribution": declaration.dist,
        "features": list(declaration.provides),
        "compatible": list(declaration.compatible),
        "conflicts": list(declaration.conflicts),
        "default_on": declaration.default_on,
        "problems": list(declaration.problems),
    }


# --- check ----------------------------------------------------------------------------------------------


class Report(NamedTuple):
    """`broken`: plugins that cannot be judged, or whose company refuses them, with the reason."""

    ok: bool
    findings: tuple[Finding, ...]
    broken: dict[str, str]
    switched_off: dict[str, str]


def run_check(args: Namespace) -> int:
    installed = discover()
    for name in args.names:
        find(name, installed)
    config = configuration(args, plugins=tuple(args.names))
    report = check_named(config, installed) if args.names else check_all(config, installed)
    if args.json:
        broken, switched_off = report.broken, report.switched_off
        findings = [finding_entry(finding) for finding in report.findings]
        print_json({"ok": report.ok, "findings": findings, "broken": broken, "switched_off": switched_off})
    else:
        print_report(report)
    return 0 if report.ok else 1


def check_named(config: EngineConfig, installed: Mapping[str, PluginDeclaration]) -> Report:
    """What start-up would say to exactly these plugins and the default ones."""
    try:
        decision = decide(config, installed)
    except PluginError as error:
        try:
            findings = resolve([installed[name] for name in config.plugins], config).findings
        except PluginError:  # a declaration that cannot be used leaves nothing to judge
            return Report(False, (), {", ".join(config.plugins): str(error)}, {})
        return Report(False, findings, {}, {})
    return Report(True, decision.resolution.findings, {}, decision.switched_off)


def check_all(config: EngineConfig, installed: Mapping[str, PluginDeclaration]) -> Report:
    """Every declaration by itself, then every pair. A declared conflict is an answer; silence is a failure."""
    broken = {}
    for name, declaration in installed.items():
        try:
            load_declaration(declaration, config)
        except PluginError as error:
            broken[name] = str(error)
    sound = [declaration for name, declaration in installed.items() if name not in broken]
    findings = tuple(pair(a, b, config) for a, b in itertools.combinations(sound, 2))
    return Report(not broken and all(f.kind != "undeclared" for f in findings), findings, broken, {})


def print_report(report: Report) -> None:
    for reason in report.broken.values():
        print(reason)
    for finding in report.findings:
        print(verdict(finding) if finding.kind == "compatible" else f"{verdict(finding)} {advice(finding)}")
    for name, reason in report.switched_off.items():
        print(f"{name} would be switched off: {reason}")
    print("ok." if report.ok else "not ok.")


# --- explain --------------------------------------------------------------------------------------------


def run_explain(args: Namespace) -> int:
    installed = discover()
    left, right = args.left, args.right
    if left not in installed and right in installed:
        left, right = right, left
    finding = explained(args, left, right, installed)
    if args.json:
        print_json(finding_entry(finding))
    else:
        print("\n".join(explanation(finding, installed)))
    return 1 if finding.kind == "undeclared" else 0


def explained(args: Namespace, left: str, right: str, installed: Mapping[str, PluginDeclaration]) -> Finding:
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
        return pair(installed[left], installed[right], configuration(args, plugins=(left, right)))
    return against_feature(installed[left], right, configuration(args, plugins=(left,)))


def pair(left: PluginDeclaration, right: PluginDeclaration, config: EngineConfig) -> Finding:
    findings = resolve([left, right], config).findings
    return next(finding for finding in findings if (finding.left, finding.right) == (left.name, right.name))


def against_feature(declaration: PluginDeclaration, token: str, config: EngineConfig) -> Finding:
    """A plugin and a feature, as if the feature were in effect."""
    if token.startswith("graph."):
        config = msgspec.structs.replace(config, graphs=token.removeprefix("graph."))
    member = load_declaration(declaration, config)
    finding = judge_core_feature(member, token, frozenset((declaration.name, *member.features, token)), config)
    if needs_no_declaration(token) or finding.statements:
        return finding
    return msgspec.structs.replace(
        finding, kind="undeclared", missing=tuple(missing_declaration_lines(member, [token]))
    )


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


# --- shared ---------------------------------------------------------------------------------------------


def configuration(args: Namespace, plugins: tuple[str, ...]) -> EngineConfig:
    options = parse_settings(args.set)
    return EngineConfig(plugins=plugins, device=args.device, graphs=args.graphs, plugin_options=options)


def finding_entry(finding: Finding) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(finding)
    return {**plain, "sentence": verdict(finding)}


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))
