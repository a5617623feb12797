"""A plugin that is registered with pluggy, and the call of one of its hooks."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve.errors import PluginError, SpecserveError
from specserve.faults import FAULTS
from specserve.plugins.error_messages import describe_error, how_to_disable
from specserve.tracing import HOOKS

if TYPE_CHECKING:
    import msgspec
    import pluggy

    from specserve.declare import PluginDeclaration

BUILTIN = "builtin"


@dataclass(slots=True, frozen=True)
class LoadedPlugin:
    """`declaration` is None for the core's own hook implementations."""

    name: str
    declaration: PluginDeclaration | None
    manager: pluggy.PluginManager
    options: msgspec.Struct | None

    def implements(self, hook: str) -> bool:
        return bool(getattr(self.manager.hook, hook).get_hookimpls())

    def call(self, hook: str, **arguments: object) -> list[Any]:
        """The results that are not None; nothing has checked their types. A SpecserveError passes; for any other
        exception the plugin is at fault."""
        began = time.perf_counter()
        try:
            results: list[Any] = getattr(self.manager.hook, hook)(**arguments)
        except SpecserveError:
            raise
        except FAULTS as error:
            raise PluginError(
                f"plugin {self.name} failed in its hook {hook}: {describe_error(error)}. {self.hint(error)}"
                f"{how_to_disable(self.name)}"
            ) from error
        if HOOKS.is_on and self.implements(hook):
            gave = ", ".join(type(result).__name__ for result in results) or "None"
            HOOKS.event(plugin=self.name, hook=hook, gave=gave, seconds=time.perf_counter() - began)
        return results

    def hint(self, error: BaseException) -> str:
        """What to do where a plugin without `plugin_options` reads its options."""
        if self.options is None and isinstance(error, AttributeError) and error.obj is None:
            return "It has no hook plugin_options, so that its options are None: add the hook, or do not read them. "
        return ""


def cause_of(error: BaseException) -> BaseException:
    """The exception that a plugin raised, from the error that `call` made of it."""
    return error.__cause__ if isinstance(error, PluginError) and error.__cause__ is not None else error
