"""Registers one plugin with pluggy, checks that its hooks are spelt as specified, and makes its options.

Each plugin gets a pluggy manager of its own: every answer then has an owner and every plugin its own `options`, and
no plugin can wrap another's hooks.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import msgspec
import pluggy

from specserve import hookspecs
from specserve.errors import PluginError
from specserve.plugins.loaded_plugin import LoadedPlugin, way_out
from specserve.plugins.options import convert
from specserve.plugins.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.declare import PluginDeclaration

HOOKS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)
    for name, function in vars(hookspecs).items()
    if hasattr(function, f"{hookspecs.PROJECT}_spec")
}
"""Argument names of every hook."""


def register(name: str, declaration: PluginDeclaration | None, plugin: Any, table: Mapping[str, Any]) -> LoadedPlugin:
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(plugin, name)
    except pluggy.PluginValidationError as error:
        raise PluginError(bad_arguments(name, error)) from None
    check_hooks(name, manager, plugin)
    return LoadedPlugin(name, declaration, manager, make_options(name, manager, table))


def check_hooks(name: str, manager: pluggy.PluginManager, plugin: Any) -> None:
    """Refuse hooks that would never be called: misspelt ones and those that miss their marker."""
    try:
        manager.check_pending()
    except pluggy.PluginValidationError:
        for caller in manager.get_hookcallers(plugin) or ():
            if not caller.has_spec():
                raise PluginError(
                    f"plugin {name} implements {caller.name!r}, which is not a hook{did_you_mean(caller.name, HOOKS)} "
                    f"(hooks: {', '.join(HOOKS)}). Correct the name in the plugin. {way_out(name)}"
                ) from None
        raise
    implemented = {caller.name for caller in manager.get_hookcallers(plugin) or ()}
    unmarked = [hook for hook in HOOKS if hook not in implemented and defines(plugin, hook)]
    if unmarked:
        raise PluginError(
            f"plugin {name} defines {', '.join(unmarked)} without the marker @hookimpl of specserve.hookspecs, so "
            f"the core would never call it. Add the marker in the plugin. {way_out(name)}"
        )
    if not implemented:
        raise PluginError(
            f"plugin {name} implements no hook: {plugin!r} has no function marked @hookimpl. "
            f"Point its entry point at the module or the class that holds them. {way_out(name)}"
        )


def defines(plugin: Any, hook: str) -> bool:
    """Does the plugin itself define a function of this name, rather than import one?"""
    function = getattr(plugin, hook, None)
    home = plugin.__name__ if inspect.ismodule(plugin) else type(plugin).__module__
    return inspect.isroutine(function) and function.__module__ == home


def bad_arguments(name: str, error: pluggy.PluginValidationError) -> str:
    """pluggy's complaint about one implementation, with what the hook takes."""
    text = " ".join(str(error).split())
    hook = next((hook for hook in HOOKS if f"for hook {hook!r}" in text), None)
    if hook is None:
        return f"plugin {name} cannot be registered: {text}. {way_out(name)}"
    takes = ", ".join(HOOKS[hook]) or "nothing"
    return f"plugin {name} implements hook {hook} with other arguments than it takes ({takes}): {text}. {way_out(name)}"


def make_options(name: str, manager: pluggy.PluginManager, table: Mapping[str, Any]) -> msgspec.Struct | None:
    bare = LoadedPlugin(name, None, manager, None)
    kinds = bare.call("plugin_options")
    if not kinds:
        if table:
            raise PluginError(f"plugin {name} takes no options; got {', '.join(table)}. Remove them.")
        return None
    kind = kinds[0]
    if len(kinds) > 1 or not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise PluginError(f"plugin {name} must return one msgspec Struct class from plugin_options; got {kinds!r}.")
    return convert(name, kind, table)
