"""A plugin that is registered with pluggy, and how one of its hooks is called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve.errors import PluginError, SpecserveError
from specserve.faults import FAULTS
from specserve.plugins.text import describe_error

if TYPE_CHECKING:
    import msgspec
    import pluggy

    from specserve.declare import PluginDeclaration

BUILTIN = "builtin"


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


def way_out(name: str) -> str:
    return f"To start without it, remove --plugin {name} or pass --no-plugin {name}."
