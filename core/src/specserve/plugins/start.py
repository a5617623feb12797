"""Start-up of plugins: discover what is installed, decide what runs, load it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from specserve.errors import PluginError
from specserve.plugins import discovery
from specserve.plugins.enabling import Decision, decide
from specserve.plugins.error_messages import how_to_disable
from specserve.plugins.load import load, load_builtin
from specserve.plugins.tokens import token_problems

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.config import EngineConfig
    from specserve.declare import InProcessPlugin, PluginDeclaration
    from specserve.plugins.loaded_plugin import LoadedPlugin


class StartedPlugins(NamedTuple):
    """`plugins` begins with the core's own hook implementations."""

    installed: Mapping[str, PluginDeclaration]
    decision: Decision
    plugins: tuple[LoadedPlugin, ...]


class DefaultPluginFailed(Exception):
    """A default plugin does not load: it is switched off with this reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name, self.reason = name, reason


def start_plugins(config: EngineConfig, in_process: Mapping[str, InProcessPlugin], builtin: object) -> StartedPlugins:
    """Where a default plugin does not load, the others are decided again without it; each is imported once."""
    installed = {
        **discovery.discover(),
        **{name: checked_declaration(name, plugin) for name, plugin in in_process.items()},
    }
    failed: dict[str, str] = {}
    loaded: dict[str, LoadedPlugin] = {}
    while True:
        decision = decide(config, installed, in_process=in_process, failed=failed)
        try:
            for declaration in decision.enabled:
                if declaration.name not in loaded:
                    loaded[declaration.name] = load_enabled(config, declaration, in_process.get(declaration.name))
        except DefaultPluginFailed as failure:
            failed[failure.name] = failure.reason
            continue
        plugins = (loaded[declaration.name] for declaration in decision.enabled)
        return StartedPlugins(installed, decision, (load_builtin(builtin), *plugins))


def load_enabled(
    config: EngineConfig, declaration: PluginDeclaration, in_process: InProcessPlugin | None
) -> LoadedPlugin:
    name = declaration.name
    try:
        return load(declaration, in_process, config.plugin_options.get(name, {}))
    except PluginError as error:
        if name in config.plugins or in_process is not None:
            raise
        raise DefaultPluginFailed(name, str(error).removesuffix(f" {how_to_disable(name)}")) from error


def checked_declaration(name: str, plugin: InProcessPlugin) -> PluginDeclaration:
    """The declaration of a plugin that is given as an object, with the problems of its feature tokens."""
    declared = plugin.declaration
    assert declared.name == name, f"given as {name!r}, declared as {declared.name!r}"
    problems = (*declared.problems, *token_problems(declared, {declared.dist}))
    return msgspec.structs.replace(declared, problems=problems)
