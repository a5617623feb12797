"""Decides which plugins run: those that are requested, and the default ones that are compatible with them.

Works on declarations alone and imports no plugin. A requested plugin that cannot run stops start-up; a default plugin
that cannot run is switched off with the reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.declare import DEFAULT_ON
from specserve.errors import ConfigError, PluginError
from specserve.plugins.error_messages import how_to_disable
from specserve.plugins.features import REPLAY
from specserve.plugins.findings import Resolution
from specserve.plugins.rules import resolve
from specserve.plugins.verdicts import refusal, verdict
from specserve_checks.nearest import did_you_mean, suggest

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from specserve.config import EngineConfig
    from specserve.declare import PluginDeclaration


class Decision(msgspec.Struct, frozen=True):
    """What runs, what was switched off and why, and the verdicts on what runs."""

    resolution: Resolution
    switched_off: dict[str, str]

    @property
    def enabled(self) -> tuple[PluginDeclaration, ...]:
        return tuple(plugin.declaration for plugin in self.resolution.plugins)


def decide(
    config: EngineConfig,
    installed: Mapping[str, PluginDeclaration],
    *,
    in_process: Iterable[str] = (),
    failed: Mapping[str, str] | None = None,
) -> Decision:
    """The plugins that start-up loads. Raises PluginError if a requested one cannot run.

    `in_process`: names of plugins that are given as objects, which requests them. `failed`: default plugins that
    did not load, with the reason.
    """
    requested = tuple(dict.fromkeys((*config.plugins, *in_process)))
    refuse_contradictions(config, installed, requested)
    resolution = resolve([find(name, installed) for name in requested], config)
    switched_off, idle = dict(failed or {}), set[str]()
    for candidate in default_plugins(config, installed, {*requested, *switched_off}):
        if has_nothing_to_plan(candidate, resolution):
            idle.add(candidate.name)
            continue
        extended, reason = try_adding(resolution, candidate, config)
        if extended is None:
            switched_off[candidate.name] = reason
        else:
            resolution = extended
    if refusals := resolution.refusals(config):
        raise PluginError(" ".join(refusal(finding) for finding in refusals))
    if config.graph_mode != "none" and REPLAY not in resolution.provided:
        raise PluginError(
            f"--graphs {config.graph_mode}: no enabled plugin replays steps. Install one (pip install "
            "specserve-plugin-graphs), enable it where it is installed (--plugin graphs), or pass --graphs none."
        )
    decision = Decision(resolution, switched_off)
    refuse_unused_options(config, installed, decision, idle)
    return decision


def default_plugins(
    config: EngineConfig, installed: Mapping[str, PluginDeclaration], excluded: Collection[str]
) -> list[PluginDeclaration]:
    if not config.default_plugins:
        return []
    excluded = {*excluded, *config.no_plugins}
    return [declared for name, declared in sorted(installed.items()) if declared.default_on and name not in excluded]


def try_adding(
    resolution: Resolution, candidate: PluginDeclaration, config: EngineConfig
) -> tuple[Resolution | None, str]:
    """The resolution with one more plugin; or None and the reason, where the plugin would add a refusal."""
    try:
        extended = resolve([*(plugin.declaration for plugin in resolution.plugins), candidate], config)
    except PluginError as error:
        return None, str(error).removesuffix(f" {how_to_disable(candidate.name)}")
    plugin = extended.plugins[-1]
    default_on = {token for token in candidate.provides if token.partition(".")[0] in DEFAULT_ON}
    if not default_on & {*plugin.features}:
        return None, "; ".join(f"{token}: {reason}" for token, reason in plugin.features_off.items()) + "."
    before = {(finding.kind, finding.left, finding.right) for finding in resolution.refusals(config)}
    new = [f for f in extended.refusals(config) if (f.kind, f.left, f.right) not in before]
    return (None, " ".join(map(verdict, new))) if new else (extended, "")


def has_nothing_to_plan(candidate: PluginDeclaration, resolution: Resolution) -> bool:
    """Whether a planner has no drafter to plan for, or another planner is enabled."""
    if not any(map(is_planner, candidate.provides)):
        return False
    enabled = [token for plugin in resolution.plugins for token in plugin.features]
    return any(map(is_planner, enabled)) or not any(token.startswith("draft.") for token in enabled)


def is_planner(token: str) -> bool:
    return token.startswith("planner.")


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
    config: EngineConfig, installed: Mapping[str, PluginDeclaration], requested: Sequence[str]
) -> None:
    """`--no-plugin` may name a plugin that is not installed, so that one command line serves many machines, unless it
    looks like a misspelt name of a default plugin."""
    defaults = [name for name, declaration in installed.items() if declaration.default_on]
    for name in config.no_plugins:
        if name in requested:
            raise PluginError(f"plugin {name} is asked for with --plugin and excluded with --no-plugin. Remove one.")
        if name not in installed and suggest(name, defaults):
            raise PluginError(f"--no-plugin {name}: no such plugin is installed{did_you_mean(name, defaults)}")


def refuse_unused_options(
    config: EngineConfig, installed: Mapping[str, PluginDeclaration], decision: Decision, idle: Collection[str]
) -> None:
    """Options are for plugins that run. Those of a default plugin that was switched off or has nothing to do are
    ignored."""
    enabled = [declaration.name for declaration in decision.enabled]
    for name in config.plugin_options:
        if name in enabled or name in decision.switched_off or name in config.no_plugins or name in idle:
            continue
        if name in installed:
            raise ConfigError(f"options are given for plugin {name}, which is not enabled. Add --plugin {name}.")
        raise ConfigError(
            f"options are given for plugin {name}, which is not installed{did_you_mean(name, installed)} "
            f"(enabled: {', '.join(enabled) or 'none'})."
        )
