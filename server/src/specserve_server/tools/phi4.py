"""Phi-4-mini's form: `<|tool_call|>[{"name": ..., "arguments": {...}}, ...]<|/tool_call|>`; some of its prompts make it
write `functools[...]` instead, which is read, too.

Source: the card of microsoft/Phi-4-mini-instruct, and vLLM's parser `phi4_mini_json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.form import ToolForm
from specserve_server.tools.tagged_objects import TaggedStream

if TYPE_CHECKING:
    from collections.abc import Collection

TRIGGER, END, OTHER_TRIGGER = "<|tool_call|>", "<|/tool_call|>", "functools["


class Phi4Mini(ToolForm):
    name = "phi4-mini"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = (TRIGGER, END)
    end = f"}}]{END}"
    takes_one = True
    list_marks = ("<|tool|>", "<|/tool|>")
    result_marks = ("<|tool_response|>", "")

    def begin(self, name: str) -> str:
        return f'{TRIGGER}[{{"name": "{name}", "arguments": '

    def stream(self, names: Collection[str]) -> TaggedStream:
        return TaggedStream(names, (TRIGGER, OTHER_TRIGGER), END)

    def is_in(self, written: str, name: str) -> bool:
        return f'"{name}"' in written.partition(TRIGGER)[2].partition(END)[0] and END in written


PHI4_MINI = Phi4Mini()
