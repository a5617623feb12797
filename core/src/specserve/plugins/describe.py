"""What runs, in lines for the banner and in plain values for /v1/plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from specserve.plugins.loaded_plugin import BUILTIN
from specserve.plugins.wording import verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.declare import PluginDeclaration
    from specserve.plugins.enabling import Decision
    from specserve.plugins.findings import Resolution
    from specserve.plugins.loaded_plugin import LoadedPlugin


def banner(decision: Decision) -> list[str]:
    """One line per enabled plugin, per default plugin that is off, and per risk that was allowed."""
    lines = []
    for member in decision.resolution.members:
        declared = member.declaration
        provides = ", ".join(member.features) or "nothing under this configuration"
        lines.append(f"plugin {declared.name} {declared.version} ({declared.dist}): {provides}")
    lines += [f"plugin {name} is switched off: {reason}" for name, reason in decision.switched_off.items()]
    undeclared = decision.resolution.of("undeclared")
    return lines + [f"warning: {verdict(finding)} Allowed by --allow-undeclared." for finding in undeclared]


def describe_plugins(
    plugins: Sequence[LoadedPlugin], installed: Mapping[str, PluginDeclaration], decision: Decision
) -> list[dict[str, Any]]:
    """Every installed plugin, enabled ones first, in plain values."""
    enabled = [describe_enabled(plugin, decision.resolution) for plugin in plugins if plugin.name != BUILTIN]
    names = {plugin.name for plugin in plugins}
    reasons = decision.switched_off
    off = [describe_off(declared, reasons.get(name)) for name, declared in installed.items() if name not in names]
    return enabled + sorted(off, key=lambda entry: (entry["reason"] is None, entry["name"]))


def describe_enabled(plugin: LoadedPlugin, resolution: Resolution) -> dict[str, Any]:
    member = next(member for member in resolution.members if member.name == plugin.name)
    own = [finding for finding in resolution.findings if plugin.name in (finding.left, finding.right)]
    others = {id(f): f.right if f.left == plugin.name else f.left for f in own}
    return {
        **identity(member.declaration),
        "features": list(member.features),
        "features_off": member.absent,
        "enabled": True,
        "reason": None,
        "options": msgspec.to_builtins(plugin.options) if plugin.options is not None else {},
        "compatibility": [{"with": others[id(f)], "verdict": f.kind, "sentence": verdict(f)} for f in own],
        "undeclared": [others[id(f)] for f in own if f.kind == "undeclared"],
    }


def identity(declared: PluginDeclaration) -> dict[str, Any]:
    return {
        "name": declared.name,
        "version": declared.version,
        "api": declared.api,
        "distribution": declared.dist,
    }


def describe_off(declared: PluginDeclaration, reason: str | None) -> dict[str, Any]:
    return {
        **identity(declared),
        "features": list(declared.provides),
        "features_off": {},
        "enabled": False,
        "reason": reason,
        "options": {},
        "compatibility": [],
        "undeclared": [],
    }
