"""`specserve plugins list`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_workbench.commands.plugins.json_output import print_json

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Mapping

    from specserve.declare import PluginDeclaration
    from specserve_checks.json_types import JsonObject


def list_plugins(args: Namespace, installed: Mapping[str, PluginDeclaration]) -> int:
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


def list_entry(declaration: PluginDeclaration) -> JsonObject:
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
