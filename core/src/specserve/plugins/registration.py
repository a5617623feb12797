"""Registers one plugin with pluggy and makes its options.

Each plugin has a pluggy manager of its own: every result can then be attributed to its plugin, every plugin gets its
own `options`, and no plugin can wrap another's hook implementations.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import msgspec
import pluggy

from specserve import hookspecs
from specserve.errors import PluginError
from specserve.plugins.hook_checks import argument_mismatch, check_hooks
from specserve.plugins.loaded_plugin import LoadedPlugin
from specserve.plugins.options import convert
from specserve_checks.struct_tables import build_struct_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.declare import PluginDeclaration


def register(
    name: str, declaration: PluginDeclaration | None, plugin: object, table: Mapping[str, object]
) -> LoadedPlugin:
    """`plugin`: the object with the hook implementations. `table`: the options that were given for it."""
    manager = registered(name, plugin)
    return LoadedPlugin(name, declaration, manager, make_options(name, manager, table))


def registered(name: str, plugin: object) -> pluggy.PluginManager:
    """A manager with the plugin alone, whose hooks were checked. Raises PluginError."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        with warnings.catch_warnings():  # the banner says it, where it is seen
            warnings.simplefilter("ignore", DeprecationWarning)
            manager.register(plugin, name)
    except pluggy.PluginValidationError as error:
        raise PluginError(argument_mismatch(name, plugin, error)) from None
    check_hooks(name, manager, plugin)
    return manager


def make_options(name: str, manager: pluggy.PluginManager, table: Mapping[str, object]) -> msgspec.Struct | None:
    """An instance of the Struct that the plugin returns from `plugin_options`; None without that hook."""
    kind = options_type(name, manager)
    if kind is None:
        if table:
            raise PluginError(f"plugin {name} takes no options; got {', '.join(table)}. Remove them.")
        return None
    build_struct_tables()  # of the plugin's modules: another engine may start at the same time
    return convert(name, kind, table)


def options_type(name: str, manager: pluggy.PluginManager) -> type[msgspec.Struct] | None:
    """What the plugin returns from `plugin_options`; None without that hook. Raises PluginError."""
    results = LoadedPlugin(name, None, manager, None).call("plugin_options")
    if not results:
        return None
    kind = results[0]
    if len(results) > 1 or not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise PluginError(f"plugin {name} must return one msgspec Struct class from plugin_options; got {results!r}.")
    return kind
