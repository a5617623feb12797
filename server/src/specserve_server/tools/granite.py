"""Granite 3's form: `<|tool_call|>[{"name": ..., "arguments": {...}}, ...]`, a list that nothing closes.

Source: IBM's chat templates of Granite 3.0 to 3.3, and vLLM's parser `granite`. Granite 4 writes Hermes' form."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.form import ToolForm
from specserve_server.tools.tagged_objects import TaggedStream

if TYPE_CHECKING:
    from collections.abc import Collection

TRIGGER = "<|tool_call|>"


class Granite(ToolForm):
    name = "granite"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = (TRIGGER,)
    end = "}]"
    takes_one = True
    list_marks = ("<|tools|>\n", "\n")
    result_marks = ("<|tool_response|>\n", "\n")

    def begin(self, name: str) -> str:
        return f'{TRIGGER}[{{"name": "{name}", "arguments": '

    def stream(self, names: Collection[str]) -> TaggedStream:
        return TaggedStream(names, (TRIGGER,), "")

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf'<\|tool_call\|>\s*\[\s*\{{[^\]]*"{name}"', written))


GRANITE = Granite()
