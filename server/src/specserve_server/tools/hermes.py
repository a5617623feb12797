"""Hermes' form, also Qwen's, Granite 4's and SmolLM3's: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as
often as wanted, or a list of such objects between the marks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.form import ToolForm
from specserve_server.tools.tagged_objects import TaggedStream

if TYPE_CHECKING:
    from collections.abc import Collection

TRIGGER, END = "<tool_call>", "</tool_call>"


class Hermes(ToolForm):
    name = "hermes"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = (TRIGGER, END)
    end = f"}}\n{END}"
    separator = "\n"
    list_marks = ("<tools>\n", "\n</tools>")
    result_marks = ("<tool_response>\n", "\n</tool_response>")

    def begin(self, name: str) -> str:
        return f'{TRIGGER}\n{{"name": "{name}", "arguments": '

    def stream(self, names: Collection[str]) -> TaggedStream:
        return TaggedStream(names, (TRIGGER,), END)

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf'{TRIGGER}\s*\[?\s*\{{[^<]*"{name}"', written))


HERMES = Hermes()
