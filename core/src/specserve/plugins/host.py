"""The plugin host: the enabled plugins of one engine, and the calls of their hooks.

Owns the order of results (the core's own first, then plugins as they were enabled) and the rule that a role with one
owner has one. Knows nothing about what the hooks return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import msgspec

from specserve.declare import InProcessPlugin
from specserve.errors import PluginError, RequestError
from specserve.faults import FAULTS, FaultLog
from specserve.plugins.best_graphs import with_best_graphs
from specserve.plugins.blame import Role
from specserve.plugins.describe import banner, describe_plugins
from specserve.plugins.hook_checks import HOOK_ARGUMENTS
from specserve.plugins.loaded_plugin import BUILTIN, cause_of
from specserve.plugins.start import start_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from specserve.config import EngineConfig
    from specserve.plugins.start import StartedPlugins
    from specserve_checks.json_types import JsonObject

__all__ = ["InProcessPlugin", "PluginHost"]

T = TypeVar("T")


class HookResults(NamedTuple, Generic[T]):
    """Results with the names of their plugins, and the names of the plugins that failed."""

    found: list[tuple[str, T]]
    failed: list[str]


class PluginHost:
    """Made by `start`; does not change afterwards."""

    def __init__(self, config: EngineConfig, started: StartedPlugins, notes: Sequence[str] = ()) -> None:
        self.config, self.notes = config, tuple(notes)
        self.installed, self.decision, self.plugins = started
        self.faults = FaultLog(config.fault_limit)
        """Faults of every part of these plugins that is called while requests are served."""
        self.implementers = {
            hook: [plugin for plugin in self.plugins if plugin.implements(hook)] for hook in HOOK_ARGUMENTS
        }

    @classmethod
    def start(
        cls, config: EngineConfig, extra: Mapping[str, InProcessPlugin] | None = None, *, builtin: object = None
    ) -> PluginHost:
        """Decide which plugins run, then load them. Raises ConfigError or a subclass.

        `extra`: plugins that are given as objects. They are enabled, after those of `config.plugins` unless they are
        named there. `builtin` replaces `specserve.builtin` in tests.
        """
        attempt, started = with_best_graphs(config, lambda tried: start_plugins(tried, extra or {}, builtin))
        return cls(attempt.config, started, attempt.notes)

    # --- calling hooks ------------------------------------------------------------------------------

    def collect(self, hook: str, **arguments: object) -> list[tuple[str, Any]]:
        """The name of each plugin and its result, where that is not None; nothing has checked its type.

        `options` are each plugin's own, and `config` is the host's unless given; neither need be passed.
        """
        takes = HOOK_ARGUMENTS[hook]
        assert set(arguments) <= set(takes), f"{hook} takes {takes}; got {sorted(arguments)}"
        if "config" in takes:
            arguments.setdefault("config", self.config)
        results = []
        for plugin in self.implementers[hook]:
            own = {**arguments, "options": plugin.options} if "options" in takes else arguments
            results += [(plugin.name, result) for result in plugin.call(hook, **own)]
        return results

    def single(self, hook: str, **arguments: object) -> tuple[str, Any] | None:
        """The result for a role with one owner: a plugin's, else the core's own. Two plugins are refused."""
        results = self.collect(hook, **arguments)
        from_plugins = [result for result in results if result[0] != BUILTIN]
        if len(from_plugins) > 1:
            names = [name for name, _ in from_plugins]
            raise PluginError(
                f"{' and '.join(names)} both answer {hook}, which only one plugin may own. "
                f"Keep one: remove --plugin or pass --no-plugin for {' or '.join(dict.fromkeys(names))}."
            )
        return next(iter(from_plugins or results), None)

    def try_collect(self, hook: str, parse: Callable[[Any], T], **arguments: object) -> HookResults[T]:
        """`collect` while requests are served. Where a hook implementation raises, or `parse` refuses its result, the
        fault is counted and the result left out. A RequestError passes."""
        found: list[tuple[str, T]] = []
        failed = []
        for plugin in self.implementers[hook]:
            try:
                found += [(plugin.name, parse(result)) for result in plugin.call(hook, **arguments)]
            except RequestError:
                raise
            except FAULTS as error:
                failed.append(plugin.name)
                self.faults.count(plugin.name, hook, cause_of(error), "; its answer is left out")
        return HookResults(found, failed)

    def guard(self, plugin: str, name: str, action: Callable[[], object]) -> Callable[[], None]:
        """A plugin's callback, such as the release of a model, that never raises: its faults are counted."""
        part = self.faults.part(plugin, name, needed=True)

        def run() -> None:
            part.call(None, action)

        return run

    # --- what runs ----------------------------------------------------------------------------------

    @property
    def loaded_names(self) -> tuple[str, ...]:
        """Enabled plugins in their order, without the core's own."""
        return tuple(plugin.name for plugin in self.plugins if plugin.name != BUILTIN)

    @property
    def features(self) -> frozenset[str]:
        """What the enabled plugins provide under this configuration."""
        return self.decision.resolution.provided

    def options(self, name: str) -> msgspec.Struct | None:
        """The effective options of a loaded plugin; None for one that takes none."""
        return {plugin.name: plugin.options for plugin in self.plugins}[name]

    def packages(self) -> dict[str, str]:
        """Plugins that were imported, by the top-level package of their code."""
        modules = {plugin.name: plugin.declaration.module for plugin in self.plugins if plugin.declaration}
        return {module.partition(".")[0]: name for name, module in modules.items() if module}

    def roles(self) -> list[Role]:
        """The registered plugin objects."""
        return [Role(p.manager.get_plugin(p.name), p.name, "hook") for p in self.plugins if p.name != BUILTIN]

    def banner(self) -> list[str]:
        return [*self.notes, *banner(self.plugins, self.decision)]

    def describe(self) -> list[JsonObject]:
        """The entries of /v1/plugins."""
        return [msgspec.to_builtins(entry) for entry in describe_plugins(self.plugins, self.installed, self.decision)]
