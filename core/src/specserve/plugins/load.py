"""Imports one plugin and makes its object where it is a class.

Owns every error of the import. Knows nothing about which plugins are enabled.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from specserve.errors import PluginError
from specserve.faults import FAULTS
from specserve.plugins.loaded_plugin import BUILTIN, LoadedPlugin, way_out
from specserve.plugins.registration import register
from specserve.plugins.text import describe_error, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from specserve.declare import PluginDeclaration


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
