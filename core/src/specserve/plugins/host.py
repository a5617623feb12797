"""The plugin host: the enabled plugins of one engine, loaded, and the way their hooks are called.

Owns the order (the core's own part first, then guests as they were enabled) and the rule that a role with one
owner has one. What is enabled is decided in `enabling` from declarations, before anything is imported; how one
plugin is imported is `loading`'s. Knows nothing about what the hooks return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from specserve.declare import InProcessPlugin, PluginDeclaration
from specserve.errors import PluginError, RequestError
from specserve.faults import FAULTS, FaultLog
from specserve.plugins.blame import Role
from specserve.plugins.describe import banner, describe_plugins
from specserve.plugins.discovery import discover
from specserve.plugins.enabling import Decision, decide
from specserve.plugins.load import load, load_builtin
from specserve.plugins.loaded_plugin import BUILTIN, LoadedPlugin, cause_of, way_out
from specserve.plugins.registration import HOOKS
from specserve.plugins.tokens import token_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from specserve.config import EngineConfig

__all__ = ["InProcessPlugin", "PluginHost"]


class Asked(NamedTuple):
    """Answers with the plugins they are from, and the plugins that gave none because they failed."""

    found: list[tuple[str, Any]]
    failed: list[str]


class PluginHost:
    """Made by `start`; does not change afterwards."""

    def __init__(
        self,
        config: EngineConfig,
        installed: Mapping[str, PluginDeclaration],
        decision: Decision,
        plugins: tuple[LoadedPlugin, ...],
    ) -> None:
        self.config, self.installed, self.decision = config, installed, decision
        self.plugins = plugins
        self.faults = FaultLog(config.fault_limit)
        """Of every part of these plugins that is called while requests are served."""
        self.implementers = {
            hook: [plugin for plugin in plugins if getattr(plugin.manager.hook, hook).get_hookimpls()] for hook in HOOKS
        }

    @classmethod
    def start(
        cls, config: EngineConfig, extra: Mapping[str, InProcessPlugin] | None = None, *, builtin: Any = None
    ) -> PluginHost:
        """Decide, then import, register and check every enabled plugin. Raises ConfigError and its kind.

        `extra`: plugins handed over as objects; handing one over enables it, after those of `config.plugins`
        unless it is named there. `builtin` stands in for `specserve.builtin` in tests.
        """
        extra = extra or {}
        installed = {**discover(), **{name: checked(name, plugin) for name, plugin in extra.items()}}
        failed: dict[str, str] = {}
        loaded: dict[str, LoadedPlugin] = {}
        while True:
            decision = decide(config, installed, handed_over=extra, failed=failed)
            if load_all(config, extra, decision, loaded, failed):
                plugins = (loaded[declaration.name] for declaration in decision.enabled)
                return cls(config, installed, decision, (load_builtin(builtin), *plugins))

    # --- calling hooks ------------------------------------------------------------------------------

    def collect(self, hook: str, **arguments: Any) -> list[tuple[str, Any]]:
        """Every plugin's answer that is not None, with the plugin's name: the core's own first, then guests.

        `options` is each plugin's own, and `config` the host's unless given; both need not be passed.
        """
        takes = HOOKS[hook]
        assert set(arguments) <= set(takes), f"{hook} takes {takes}; got {sorted(arguments)}"
        if "config" in takes:
            arguments.setdefault("config", self.config)
        answers = []
        for plugin in self.implementers[hook]:
            own = {**arguments, "options": plugin.options} if "options" in takes else arguments
            answers += [(plugin.name, answer) for answer in plugin.call(hook, **own)]
        return answers

    def ask(self, hook: str, read: Callable[[Any], Any], **arguments: Any) -> Asked:
        """`collect` while requests are served: a plugin that raises, or whose answer `read` does not take, is counted
        and left out. A RequestError passes."""
        found, failed = [], []
        for plugin in self.implementers[hook]:
            try:
                found += [(plugin.name, read(answer)) for answer in plugin.call(hook, **arguments)]
            except RequestError:
                raise
            except FAULTS as error:
                failed.append(plugin.name)
                self.faults.count(plugin.name, hook, cause_of(error), "; its answer is left out")
        return Asked(found, failed)

    def contained(self, plugin: str, name: str, action: Callable[[], object]) -> Callable[[], None]:
        """A plugin's action, such as the release of a pin, made safe: what it raises is counted and goes no further."""
        part = self.faults.part(plugin, name, needed=True)

        def run() -> None:
            part.call(None, action)

        return run

    def single(self, hook: str, **arguments: Any) -> tuple[str, Any] | None:
        """The one answer to a role that has one owner; a guest's goes before the core's own. Two guests are refused."""
        answers = self.collect(hook, **arguments)
        guests = [answer for answer in answers if answer[0] != BUILTIN]
        if len(guests) > 1:
            names = [name for name, _ in guests]
            raise PluginError(
                f"{' and '.join(names)} both answer {hook}, which only one plugin may own. "
                f"Keep one: remove --plugin or pass --no-plugin for {' or '.join(dict.fromkeys(names))}."
            )
        return next(iter(guests or answers), None)

    def options(self, name: str) -> msgspec.Struct | None:
        """The effective options of a loaded plugin; None for one that takes none."""
        return {plugin.name: plugin.options for plugin in self.plugins}[name]

    def packages(self) -> dict[str, str]:
        """The plugins that came from packages, by the top-level name of their code."""
        modules = {plugin.name: plugin.declaration.module for plugin in self.plugins if plugin.declaration}
        return {module.partition(".")[0]: name for name, module in modules.items() if module}

    def roles(self) -> list[Role]:
        """The plugin objects themselves."""
        return [Role(p.manager.get_plugin(p.name), p.name, "hook") for p in self.plugins if p.name != BUILTIN]

    @property
    def loaded_names(self) -> tuple[str, ...]:
        """Enabled plugins in order, without the core's own part."""
        return tuple(plugin.name for plugin in self.plugins if plugin.name != BUILTIN)

    @property
    def features(self) -> frozenset[str]:
        """What the enabled plugins provide under this configuration."""
        return self.decision.resolution.provided

    def banner(self) -> list[str]:
        return banner(self.decision)

    def describe(self) -> list[dict[str, Any]]:
        """The body of /v1/plugins."""
        return describe_plugins(self.plugins, self.installed, self.decision)


def load_all(
    config: EngineConfig,
    extra: Mapping[str, InProcessPlugin],
    decision: Decision,
    loaded: dict[str, LoadedPlugin],
    failed: dict[str, str],
) -> bool:
    """Load every enabled plugin, once. False when a default one fails: it is added to `failed`, and the rest is
    decided anew."""
    for declaration in decision.enabled:
        name = declaration.name
        if name in loaded:
            continue
        handed_over = extra[name].plugin if name in extra else None
        try:
            loaded[name] = load(declaration, handed_over, config.plugin_options.get(name, {}))
        except PluginError as error:
            if name in config.plugins or name in extra:
                raise
            failed[name] = str(error).removesuffix(f" {way_out(name)}")
            return False
    return True


def checked(name: str, plugin: InProcessPlugin) -> PluginDeclaration:
    """The declaration of a plugin that was handed over, held to the same spelling as an installed one's."""
    declared = plugin.declaration
    assert declared.name == name, f"handed over as {name!r}, declared as {declared.name!r}"
    problems = (*declared.problems, *token_problems(declared, {declared.dist}))
    return msgspec.structs.replace(declared, problems=problems)
