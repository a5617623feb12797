"""Imports one plugin, makes its object where it is a class, and checks that its hooks are spelt as specified.

Owns the way from a declaration to a callable plugin, and every error on it. Knows nothing about which plugins
are enabled. Each plugin gets a pluggy manager of its own: every answer then has an owner and every plugin its
own `options`, and no plugin can wrap another's hooks.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pluggy

from specserve import hookspecs
from specserve.errors import PluginError, SpecserveError
from specserve.faults import FAULTS
from specserve.plugins.features import did_you_mean
from specserve.plugins.options import convert
from specserve.plugins.rules import describe_error

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from specserve.declare import PluginDeclaration

BUILTIN = "builtin"
HOOKS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)
    for name, function in vars(hookspecs).items()
    if hasattr(function, f"{hookspecs.PROJECT}_spec")
}
"""Argument names of every hook."""


@dataclass(slots=True, frozen=True)
class LoadedPlugin:
    """A plugin whose hooks can be called. `declaration` is None for the core's own part."""

    name: str
    declaration: PluginDeclaration | None
    manager: pluggy.PluginManager
    options: msgspec.Struct | None

    def call(self, hook: str, **arguments: Any) -> list[Any]:
        """The plugin's answers that are not None. Deliberate errors pass; any other is the plugin's fault."""
        try:
            answers: list[Any] = getattr(self.manager.hook, hook)(**arguments)
        except SpecserveError:
            raise
        except FAULTS as error:
            raise PluginError(
                f"plugin {self.name} failed in its hook {hook}: {describe_error(error)}. {way_out(self.name)}"
            ) from error
        return answers


def cause_of(error: BaseException) -> BaseException:
    """What a plugin raised, out of the error that `call` made of it."""
    return error.__cause__ if isinstance(error, PluginError) and error.__cause__ is not None else error


def load(declaration: PluginDeclaration, handed_over: Any, table: Mapping[str, Any]) -> LoadedPlugin:
    """Import the plugin, unless it was handed over, register it, make its options. Raises ConfigError and its kind."""
    plugin = import_plugin(declaration) if handed_over is None else handed_over
    return register(declaration.name, declaration, plugin, table)


def load_builtin(builtin: Any) -> LoadedPlugin:
    """The core's own parts, through the same hooks; imported only now because they import torch."""
    return register(BUILTIN, None, builtin or importlib.import_module("specserve.builtin"), {})


def import_plugin(declaration: PluginDeclaration) -> Any:
    """The module, or an instance of its own of the class in it that the entry point names."""
    try:
        module = importlib.import_module(declaration.module)
    except FAULTS as error:
        raise PluginError(
            f"{introduce(declaration)} failed to import {declaration.module}: {describe_error(error)}. "
            f"Repair or reinstall {declaration.dist}. {way_out(declaration.name)}"
        ) from error
    return make_instance(declaration, module) if declaration.class_name else module


def make_instance(declaration: PluginDeclaration, module: ModuleType) -> Any:
    name = declaration.class_name
    kind = getattr(module, name, None)
    if not isinstance(kind, type):
        raise PluginError(
            f"{introduce(declaration)}: {no_class(module, name)} "
            f"Correct its entry point in {declaration.dist}. {way_out(declaration.name)}"
        )
    try:
        return kind()
    except FAULTS as error:
        raise PluginError(
            f"{introduce(declaration)} failed to make its {name} without arguments: {describe_error(error)}. "
            f"Repair or reinstall {declaration.dist}. {way_out(declaration.name)}"
        ) from error


def no_class(module: ModuleType, name: str) -> str:
    if hasattr(module, name):
        return f"{name} in {module.__name__} is a {type(getattr(module, name)).__name__} and must be a class."
    classes = [each for each, value in vars(module).items() if isinstance(value, type)]
    return f"{module.__name__} has no class {name}{did_you_mean(name, classes) or '.'}"


def introduce(declaration: PluginDeclaration) -> str:
    return f"plugin {declaration.name} ({declaration.dist} {declaration.version})"


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


def way_out(name: str) -> str:
    return f"To start without it, remove --plugin {name} or pass --no-plugin {name}."
