"""Which plugins run: lines for the banner, and the entries of /v1/plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.plugins.hook_checks import deprecated_uses, features_without_hook, undeclared_features
from specserve.plugins.loaded_plugin import BUILTIN
from specserve.plugins.verdicts import verdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from specserve.declare import PluginDeclaration
    from specserve.plugins.enabling import Decision
    from specserve.plugins.findings import Finding, Resolution
    from specserve.plugins.loaded_plugin import LoadedPlugin


class Compatibility(msgspec.Struct, frozen=True):
    """The finding about another plugin or a feature, named in `other`."""

    other: str = msgspec.field(name="with")
    verdict: str
    sentence: str


class PluginEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An installed plugin. `reason`: why a default plugin is switched off."""

    name: str
    version: str
    api: int
    distribution: str
    features: list[str]
    features_off: dict[str, str] = {}
    enabled: bool = False
    reason: str | None = None
    options: dict[str, object] = {}
    compatibility: list[Compatibility] = []
    undeclared: list[str] = []


def banner(plugins: Sequence[LoadedPlugin], decision: Decision) -> list[str]:
    """The enabled plugins, the default plugins that are switched off, and warnings about what is not declared."""
    lines = []
    for loaded in decision.resolution.plugins:
        declared = loaded.declaration
        provides = ", ".join(loaded.features) or "nothing under this configuration"
        lines.append(f"plugin {declared.name} {declared.version} ({declared.dist}): {provides}")
    lines += [f"plugin {name} is switched off: {reason}" for name, reason in decision.switched_off.items()]
    for plugin in plugins:
        texts = (*undeclared_features(plugin), *features_without_hook(plugin), *deprecated_uses(plugin))
        lines += [f"warning: {text}" for text in texts]
    undeclared = decision.resolution.of("undeclared")
    return lines + [f"warning: {verdict(finding)} Allowed by --allow-undeclared." for finding in undeclared]


def describe_plugins(
    plugins: Sequence[LoadedPlugin], installed: Mapping[str, PluginDeclaration], decision: Decision
) -> list[PluginEntry]:
    """Enabled plugins in their order, then those that are switched off, then the other installed ones."""
    enabled = [enabled_entry(plugin, decision.resolution) for plugin in plugins if plugin.name != BUILTIN]
    names = {entry.name for entry in enabled}
    reasons = decision.switched_off
    disabled = [
        entry_of(declared, reason=reasons.get(name)) for name, declared in installed.items() if name not in names
    ]
    return enabled + sorted(disabled, key=lambda entry: (entry.reason is None, entry.name))


def enabled_entry(plugin: LoadedPlugin, resolution: Resolution) -> PluginEntry:
    loaded = next(loaded for loaded in resolution.plugins if loaded.name == plugin.name)
    findings = [finding for finding in resolution.findings if plugin.name in (finding.left, finding.right)]
    return msgspec.structs.replace(
        entry_of(loaded.declaration),
        features=list(loaded.features),
        features_off=loaded.features_off,
        enabled=True,
        options=msgspec.to_builtins(plugin.options) if plugin.options is not None else {},
        compatibility=[Compatibility(other(f, plugin.name), f.kind, verdict(f)) for f in findings],
        undeclared=[other(f, plugin.name) for f in findings if f.kind == "undeclared"],
    )


def other(finding: Finding, name: str) -> str:
    return finding.right if finding.left == name else finding.left


def entry_of(declared: PluginDeclaration, reason: str | None = None) -> PluginEntry:
    return PluginEntry(
        name=declared.name,
        version=declared.version,
        api=declared.api,
        distribution=declared.dist,
        features=list(declared.provides),
        reason=reason,
    )
