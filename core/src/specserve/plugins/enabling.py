"""Decides which plugins run: those asked for, and the kernel plugins that fit beside them.

Works on declarations alone and imports no plugin. One that was asked for and cannot run stops start-up; a
kernel plugin that is on by default and cannot run is switched off with its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.errors import ConfigError, PluginError
from specserve.plugins.features import KERNEL
from specserve.plugins.findings import Resolution
from specserve.plugins.rules import resolve
from specserve.plugins.text import did_you_mean, suggest
from specserve.plugins.wording import refusal, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration


class Decision(msgspec.Struct, frozen=True):
    """What runs, what was switched off and why, and the verdicts on what runs."""

    resolution: Resolution
    switched_off: dict[str, str]

    @property
    def enabled(self) -> tuple[PluginDeclaration, ...]:
        return tuple(member.declaration for member in self.resolution.members)


def decide(
    config: EngineConfig,
    installed: Mapping[str, PluginDeclaration],
    *,
    handed_over: Iterable[str] = (),
    failed: Mapping[str, str] | None = None,
) -> Decision:
    """The set that start-up runs with. Raises PluginError where what was asked for cannot run.

    `handed_over`: plugins given as objects, which is asking for them. `failed`: default plugins that were
    already found not to load, with the reason.
    """
    asked = tuple(dict.fromkeys((*config.plugins, *handed_over)))
    refuse_contradictions(config, installed, asked)
    declarations = [find(name, installed) for name in asked]
    resolution = resolve(declarations, config)
    switched_off = dict(failed or {})
    for candidate in default_plugins(config, installed, asked):
        if candidate.name in switched_off:
            continue
        wider, reason = widen(resolution, candidate, config)
        if wider is None:
            switched_off[candidate.name] = reason
        else:
            resolution = wider
    refusals = resolution.refusals(config)
    if refusals:
        raise PluginError(" ".join(refusal(finding) for finding in refusals))
    decision = Decision(resolution, switched_off)
    refuse_homeless_options(config, installed, decision)
    return decision


def default_plugins(
    config: EngineConfig, installed: Mapping[str, PluginDeclaration], asked: Sequence[str]
) -> list[PluginDeclaration]:
    if not config.default_plugins:
        return []
    excluded = {*asked, *config.no_plugins}
    return [declared for name, declared in sorted(installed.items()) if declared.default_on and name not in excluded]


def widen(resolution: Resolution, candidate: PluginDeclaration, config: EngineConfig) -> tuple[Resolution | None, str]:
    """The resolution with one more plugin, or why that plugin stays off: whatever it would newly refuse."""
    try:
        wider = resolve([*(member.declaration for member in resolution.members), candidate], config)
    except PluginError as error:
        return None, str(error)
    member = wider.members[-1]
    if not any(token in KERNEL for token in member.features):
        return None, "; ".join(f"{token}: {reason}" for token, reason in member.absent.items()) + "."
    before = {(finding.kind, finding.left, finding.right) for finding in resolution.refusals(config)}
    new = [f for f in wider.refusals(config) if (f.kind, f.left, f.right) not in before]
    return (None, " ".join(map(verdict, new))) if new else (wider, "")


def find(name: str, installed: Mapping[str, PluginDeclaration]) -> PluginDeclaration:
    """The declaration of an installed plugin, or PluginError with the nearest name."""
    if name not in installed:
        known = f"installed are: {', '.join(sorted(installed))}" if installed else "no plugin is installed"
        raise PluginError(
            f"plugin {name} is not installed{did_you_mean(name, installed)} ({known}). "
            f"Install the distribution that brings {name}, or leave it off."
        )
    return installed[name]


def refuse_contradictions(
    config: EngineConfig, installed: Mapping[str, PluginDeclaration], asked: Sequence[str]
) -> None:
    """`--no-plugin` may name what is not installed, so that one command line serves many machines, but not
    what looks like a misspelt name of an installed default."""
    defaults = [name for name, declaration in installed.items() if declaration.default_on]
    for name in config.no_plugins:
        if name in asked:
            raise PluginError(f"plugin {name} is asked for with --plugin and excluded with --no-plugin. Remove one.")
        if name not in installed and suggest(name, defaults):
            raise PluginError(f"--no-plugin {name}: no such plugin is installed{did_you_mean(name, defaults)}")


def refuse_homeless_options(
    config: EngineConfig, installed: Mapping[str, PluginDeclaration], decision: Decision
) -> None:
    """Options for a plugin that does not run are a mistake, unless it is one that was switched off."""
    enabled = [declaration.name for declaration in decision.enabled]
    for name in config.plugin_options:
        if name in enabled or name in decision.switched_off or name in config.no_plugins:
            continue
        if name in installed:
            raise ConfigError(f"options are given for plugin {name}, which is not enabled. Add --plugin {name}.")
        raise ConfigError(
            f"options are given for plugin {name}, which is not installed{did_you_mean(name, installed)} "
            f"(enabled: {', '.join(enabled) or 'none'})."
        )
