"""Llama 3's form: a text that begins with `{"name": ..., "parameters": {...}}` is a call.

No mark tells it from a JSON answer. So the object is shown once it is complete: it is a call if it names an offered
tool and has the keys of a call and no others, and else the text that it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.call_stream import ObjectStream, width_of_blanks
from specserve_server.tools.form import ToolForm

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_server.tools.pieces import Parsed

TAG = "<|python_tag|>"


class Llama3(ToolForm):
    name = "llama3"
    marks: ClassVar[tuple[str, ...]] = (TAG,)
    end = "}"
    separator = "; "

    def begin(self, name: str) -> str:
        return f'{{"name": "{name}", "parameters": '

    def stream(self, names: Collection[str]) -> Llama3Stream:
        return Llama3Stream(names)

    def is_in(self, written: str, name: str) -> bool:
        begun = written.lstrip().removeprefix(TAG).lstrip()
        return begun.startswith("{") and f'"{name}"' in begun


class Llama3Stream(ObjectStream):
    def text(self, parsed: Parsed, final: bool) -> bool:
        begun = self.held.lstrip().removeprefix(TAG).lstrip()
        if begun.startswith("{"):
            return self.begin_object(len(self.held) - len(begun))
        waits = not begun or TAG.startswith(begun)
        if waits and not final:
            return False
        self.state = self.no_object
        return True

    def no_object(self, parsed: Parsed, final: bool) -> bool:
        """Text until the end."""
        self.flush(parsed)
        return False

    def is_call(self) -> bool:
        return self.call.done and self.call.has_arguments

    def show(self, parsed: Parsed, is_last: bool) -> None:
        """Where the text ends within the arguments, or right behind them, they are those of a call."""
        call = self.call
        is_unfinished = call.begun and not call.done and not call.refused and not call.unshown.strip()
        if is_last and (self.is_call() or is_unfinished):
            parsed.pieces += call.taken_pieces()
            self.num_calls += 1
        elif is_last:
            parsed.add_text(call.whole)

    def after(self, parsed: Parsed, final: bool) -> bool:
        at = width_of_blanks(self.held, ";,")
        if self.held[at : at + 1] == "{":
            return self.begin_object(at)
        if at == len(self.held) and not final:
            return False
        self.held, self.state = self.held.lstrip(), self.no_object
        return True


LLAMA3 = Llama3()
