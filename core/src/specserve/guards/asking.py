"""Asks a plugin's object that is needed at start-up: where it raises or answers something else, the error says whose
fault that is. Knows nothing of what the answers mean."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from specserve.code_places import where_written
from specserve.errors import PluginError, SpecserveError
from specserve.faults import FAULTS, full_summary
from specserve.plugins.interface_checks import public_name

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Asked(NamedTuple):
    """`what` it is, as in "family granite"; `base`: the class whose documentation says what it must answer; `passes`:
    errors that it may raise, all of which name a file."""

    owner: str
    what: str
    base: type
    passes: tuple[type[Exception], ...] = (SpecserveError,)

    def answer(self, method: str, is_right: Callable[[Any], bool], ask: Callable[..., T], *arguments: object) -> T:
        """What `ask` answers to these arguments."""
        try:
            answer = ask(*arguments)
            if is_right(answer):
                return answer
            what = f"answered {type(answer).__name__}{where_written(ask)}"
        except self.passes:
            raise
        except FAULTS as error:
            what = full_summary(error, ask)
        raise PluginError(
            f"{self.owner}: its {self.what} {what}, when it was asked for {method}. "
            f"See {public_name(self.base)}, or remove --plugin {self.owner}."
        )
