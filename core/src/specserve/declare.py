"""What a plugin declares: the constants of its `.compat` module, and everything that its entry points say.

Imports nothing heavy: `.compat` modules import it, and `specserve plugins` imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from specserve.config import EngineConfig

PLUGIN_API = 2
"""The version of the plugin API that this specserve has; docs/plugins.md says what may change within a version."""

Check = Callable[[frozenset[str], EngineConfig], str | None]
"""`check(enabled, config)`: the reason for a refusal, or None. `enabled` holds the names of all enabled plugins and all
features in effect: a check may refuse three plugins of which any two are compatible."""

Condition = Callable[[EngineConfig], str | None]
"""`check(config)`: why the feature is not provided under this configuration, or None."""


class Provides(msgspec.Struct, frozen=True):
    """A feature that the plugin provides only under some configurations."""

    sentence: str
    check: Condition | None = None


class Compatible(msgspec.Struct, frozen=True):
    """Why the plugin works with the feature. Where the check returns a reason, they are in conflict."""

    sentence: str
    check: Check | None = None


class Conflict(msgspec.Struct, frozen=True):
    """Why the plugin cannot run with the feature. With a check, only where that returns a reason."""

    sentence: str
    check: Check | None = None


DEFAULT_ON = ("kernel", "graph", "planner", "model")
"""Namespaces of features whose providers are enabled unless switched off."""


class Reference(msgspec.Struct, frozen=True):
    """An entry point's value, `package.compat:CONSTANT`, not imported yet."""

    value: str


class PluginDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a plugin before it is imported. A str stands for the constant with that sentence."""

    name: str
    dist: str = "in-process"
    version: str = "0"
    api: int = PLUGIN_API
    """The version of the plugin API that the plugin is made for."""
    module: str = ""
    class_name: str = ""
    """The class in `module` with the hook implementations, instantiated once per engine; empty for the module."""
    provides: dict[str, Reference | Provides | str] = {}
    compatible: dict[str, Reference | Compatible | str] = {}
    conflicts: dict[str, Reference | Conflict | str] = {}
    problems: tuple[str, ...] = ()
    """What is wrong with the entry points; a plugin with problems cannot be enabled."""

    @property
    def default_on(self) -> bool:
        """Kernels and planners change the speed and no result, and families of models only add models: plugins that
        provide them are enabled unless switched off."""
        return any(token.partition(".")[0] in DEFAULT_ON for token in self.provides)


class InProcessPlugin(NamedTuple):
    """A plugin that is given as an object and belongs to no distribution, as in tests."""

    plugin: object
    """A module or another object with hook implementations."""
    declaration: PluginDeclaration
