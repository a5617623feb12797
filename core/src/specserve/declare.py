"""The vocabulary of a plugin's declarations: what `.compat` modules are written in.

Owns the constants behind entry points and the struct that holds one plugin's declarations. Imports nothing
heavy, because `.compat` modules import it and the compatibility commands import them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from specserve.config import EngineConfig

PLUGIN_API = 1
"""The version of the plugin API that this specserve has; docs/plugins.md says what a version promises."""

Check = Callable[[frozenset[str], EngineConfig], str | None]
"""`check(enabled, config)`: why not, in one sentence without its full stop, or None. `enabled` holds the names of
all enabled plugins and all features in effect, so that three can refuse where each two agree."""

Condition = Callable[[EngineConfig], str | None]
"""`check(config)`: why the feature is not provided under this configuration, or None."""


class Provides(msgspec.Struct, frozen=True):
    """A feature that the plugin provides only under some configurations."""

    sentence: str
    check: Condition | None = None


class Compatible(msgspec.Struct, frozen=True):
    """What holds where this plugin meets the feature. A check that returns a reason refuses."""

    sentence: str
    check: Check | None = None


class Conflict(msgspec.Struct, frozen=True):
    """Why this plugin cannot run with the feature. With a check, it conflicts only where the check returns a reason."""

    sentence: str
    check: Check | None = None


class Reference(msgspec.Struct, frozen=True):
    """An entry point's value, `package.compat:CONSTANT`, not imported yet."""

    value: str


class PluginDeclaration(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a plugin before it is imported. A str in place of a constant is its sentence."""

    name: str
    dist: str = "in-process"
    version: str = "0"
    api: int = PLUGIN_API
    """The version of the plugin API that the plugin is made for."""
    module: str = ""
    class_name: str = ""
    """The class in `module` that holds the hooks, made once per engine; empty where the module itself does."""
    provides: dict[str, Reference | Provides | str] = {}
    compatible: dict[str, Reference | Compatible | str] = {}
    conflicts: dict[str, Reference | Conflict | str] = {}
    problems: tuple[str, ...] = ()
    """What is wrong with the declarations as written; enabling the plugin is refused while there are any."""

    @property
    def default_on(self) -> bool:
        """Kernel plugins change speed and not meaning: they are on unless switched off."""
        return any(token.startswith("kernel.") for token in self.provides)


class InProcessPlugin(NamedTuple):
    """A plugin that is handed over as an object, with no distribution: how tests write theirs."""

    plugin: Any
    """A module or object with hook implementations."""
    declaration: PluginDeclaration
