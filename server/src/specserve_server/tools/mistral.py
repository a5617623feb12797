"""Mistral's forms: `[TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]`, and since version 11 of its tokenizers
`[TOOL_CALLS]name[ARGS]{...}` for each call. One stream reads both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.call_stream import (
    MAX_OPENING,
    ArgumentsStream,
    ObjectStream,
    TriggeredStream,
    width_of_blanks,
)
from specserve_server.tools.form import ToolForm

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_server.tools.pieces import Parsed

TRIGGER, ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
MAX_HEAD = 256
"""Characters of a call before its arguments."""
HEAD = re.compile(r"\s*([^\s\[{]+)\s*(?:\[CALL_ID\][\w-]*\s*)?(?:\[ARGS\]\s*)?(?=\{)")


class Mistral(ToolForm):
    name = "mistral"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = (TRIGGER,)
    end = "}]"
    takes_one = True
    list_marks = ("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")
    result_marks = ("[TOOL_RESULTS]", "[/TOOL_RESULTS]")

    def begin(self, name: str) -> str:
        return f'{TRIGGER}[{{"name": "{name}", "arguments": '

    def stream(self, names: Collection[str]) -> MistralStream:
        return MistralStream(names)

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf'\[TOOL_CALLS\]\s*\[?\s*\{{[^\]]*"{name}"', written))


class MistralV11(Mistral):
    name = "mistral-v11"
    marks = (TRIGGER, ID, ARGS)
    end = ""
    takes_one = False

    def begin(self, name: str) -> str:
        return f"{TRIGGER}{name}{ARGS}"

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf"\[TOOL_CALLS\]\s*{name}\s*(\[CALL_ID\]|\[ARGS\]|\{{)", written))


class MistralStream(TriggeredStream, ObjectStream, ArgumentsStream):
    triggers = (TRIGGER,)
    in_list = False

    def opening(self, parsed: Parsed, final: bool) -> bool:
        at = width_of_blanks(self.held[:MAX_OPENING], "[")
        if self.held[at : at + 1] == "{":
            self.in_list = "[" in self.held[:at]
            return self.begin_object(at, TRIGGER)
        head = self.held[:MAX_HEAD]
        match = HEAD.match(head)
        if match is not None and match[1] in self.names:
            return self.begin_arguments(parsed, match[1], match.end())
        waits = match is None and len(self.held) < MAX_HEAD and (at == len(head) or self.may_be_head(head))
        return False if waits and not final else self.no_call(parsed)

    def may_be_head(self, text: str) -> bool:
        """Whether the text may go on to be a name, perhaps an id, and the mark of arguments."""
        name, _, rest = text.lstrip().partition("[")
        if not rest and not text.endswith("["):
            return any(each.startswith(name.rstrip()) for each in self.names)
        mark = f"[{rest}".rstrip()
        return name.rstrip() in self.names and (mark.startswith(ID) or ID.startswith(mark) or ARGS.startswith(mark))

    def after(self, parsed: Parsed, final: bool) -> bool:
        """The end of the list, or its next object."""
        inner = self.held.lstrip()
        if self.in_list and inner.startswith("]"):
            self.held, self.state = inner[1:], self.blanks
            return True
        at = width_of_blanks(self.held, ",;")
        if self.held[at : at + 1] == "{":
            return self.begin_object(at)
        if at == len(self.held) and not final:
            return False
        self.held, self.state = inner, self.text
        return bool(inner)


MISTRAL, MISTRAL_V11 = Mistral(), MistralV11()
