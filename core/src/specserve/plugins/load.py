"""Imports one plugin, and instantiates it where its entry point names a class.

Owns every error of the import. Knows nothing about which plugins are enabled.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from specserve.errors import PluginError
from specserve.faults import FAULTS
from specserve.plugins.error_messages import describe_error, full_name, how_to_disable
from specserve.plugins.loaded_plugin import BUILTIN, LoadedPlugin
from specserve.plugins.registration import register
from specserve_checks.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from specserve.declare import InProcessPlugin, PluginDeclaration


def load(
    declaration: PluginDeclaration, in_process: InProcessPlugin | None, table: Mapping[str, object]
) -> LoadedPlugin:
    """Import the plugin, unless it is given as an object, and register it. Raises ConfigError or a subclass."""
    plugin = import_plugin(declaration) if in_process is None else in_process.plugin
    return register(declaration.name, declaration, plugin, table)


def load_builtin(builtin: object) -> LoadedPlugin:
    """The core's own hook implementations; `specserve.builtin` is imported only here because it imports torch."""
    return register(BUILTIN, None, builtin or importlib.import_module("specserve.builtin"), {})


def import_plugin(declaration: PluginDeclaration) -> object:
    """The module that the entry point names, or a new instance of the class that it names."""
    try:
        module = importlib.import_module(declaration.module)
    except FAULTS as error:
        raise PluginError(
            f"{full_name(declaration)} failed to import {declaration.module}: {describe_error(error)}. "
            f"Repair or reinstall {declaration.dist}. {how_to_disable(declaration.name)}"
        ) from error
    return make_instance(declaration, module) if declaration.class_name else module


def make_instance(declaration: PluginDeclaration, module: ModuleType) -> object:
    name = declaration.class_name
    kind: object = getattr(module, name, None)
    if not isinstance(kind, type):
        raise PluginError(
            f"{full_name(declaration)}: {no_class(module, name)} "
            f"Correct its entry point in {declaration.dist}. {how_to_disable(declaration.name)}"
        )
    try:
        instance: object = kind()
    except FAULTS as error:
        raise PluginError(
            f"{full_name(declaration)} failed to make its {name} without arguments: {describe_error(error)}. "
            f"Repair or reinstall {declaration.dist}. {how_to_disable(declaration.name)}"
        ) from error
    return instance


def no_class(module: ModuleType, name: str) -> str:
    if hasattr(module, name):
        return f"{name} in {module.__name__} is a {type(getattr(module, name)).__name__} and must be a class."
    classes = [each for each, value in vars(module).items() if isinstance(value, type)]
    return f"{module.__name__} has no class {name}{did_you_mean(name, classes) or '.'}"
