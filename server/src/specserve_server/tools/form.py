"""What every form of tool calls has: how a call is written, and a stream that reads calls."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from specserve_server.tools.call_stream import CallStream


class ToolForm(ABC):
    """One instance per form, without state."""

    name: ClassVar[str]
    trigger: ClassVar[str] = ""
    """Begins a call, or a list of them; "" where a text that begins with a call is one."""
    marks: ClassVar[tuple[str, ...]] = ()
    """Texts around calls that may be special tokens of a model."""
    stops: ClassVar[tuple[str, ...]] = ()
    """Special tokens with which the model ends a text with calls; those that it has end a text."""
    end: ClassVar[str] = ""
    """Follows the arguments."""
    separator: ClassVar[str] = ""
    """Between two calls."""
    style: ClassVar[str] = "json"
    """How arguments are written, as the plugin `grammar` names it."""
    takes_one: ClassVar[bool] = False
    """A structural tag cannot say how several calls are written."""
    list_marks: ClassVar[tuple[str, str]] = ("", "")
    """Around a list of tools, where a prompt describes them in this form."""
    result_marks: ClassVar[tuple[str, str]] = ("", "")
    """Around what a tool gave."""

    @abstractmethod
    def begin(self, name: str) -> str:
        """What stands before the arguments of a call of the tool, with the trigger."""

    @abstractmethod
    def stream(self, names: Collection[str]) -> CallStream:
        """Reads one text. `names`: the tools that may be called; a mapping has the schema of each."""

    def written(self, name: str, arguments: Mapping[str, object]) -> str:
        """A call as the model writes it."""
        return f"{self.begin(name)}{json.dumps(arguments, ensure_ascii=False)}{self.end}"

    def example(self) -> str:
        """A call of no tool, for a prompt that tells how one is written."""
        if self.style == "json":
            return f"{self.begin('NAME')}{{...}}{self.end}"
        return self.written("NAME", {"KEY": "VALUE"})

    @abstractmethod
    def is_in(self, written: str, name: str) -> bool:
        """Whether a template that wrote this for a call of the tool writes calls in this form."""
