"""gpt-oss' form, harmony: a message on the channel "commentary" whose recipient is a function, which `<|call|>` ends.

    <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>

Source: OpenAI's description of the harmony response format (cookbook.openai.com/article/harmony). The recipient may
stand in front of the channel, too; `specserve_server.generation.harmony` writes one header for all of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.call_stream import ArgumentsStream, TriggeredStream
from specserve_server.tools.form import ToolForm

if TYPE_CHECKING:
    from collections.abc import Collection

    from specserve_server.tools.pieces import Parsed

TRIGGER = "<|channel|>commentary to=functions."
MESSAGE, END = "<|message|>", "<|call|>"
HEADER = re.compile(r"([\w.-]+) ?(?:<\|constrain\|>)?(?:json)?<\|message\|>\s*(?=[\[{\"])")
MAX_HEADER = 512


class Harmony(ToolForm):
    name = "harmony"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = ("<|channel|>", MESSAGE, END)
    stops: ClassVar[tuple[str, ...]] = (END, "<|return|>")
    end = END
    takes_one = True
    list_marks = ("# Tools\n", "\n")

    def begin(self, name: str) -> str:
        return f"{TRIGGER}{name} <|constrain|>json{MESSAGE}"

    def stream(self, names: Collection[str]) -> HarmonyCalls:
        return HarmonyCalls(names)

    def is_in(self, written: str, name: str) -> bool:
        return bool(
            re.search(rf"to=functions\.{name}(<\|channel\|>commentary)? ?(<\|constrain\|>)?\w*<\|message\|>", written)
        )


class HarmonyCalls(TriggeredStream, ArgumentsStream):
    triggers = (TRIGGER,)

    def opening(self, parsed: Parsed, final: bool) -> bool:
        head = self.held[:MAX_HEADER]
        match = HEADER.match(head)
        if match is not None and match[1] in self.names:
            return self.begin_arguments(parsed, match[1], match.end())
        before, mark, after = head.partition(MESSAGE)
        waits = match is None and len(head) < MAX_HEADER and not (mark and after.strip()) and "\n" not in before
        return False if waits and not final else self.no_call(parsed)

    def behind_arguments(self, parsed: Parsed, final: bool) -> bool:
        inner = self.held.lstrip()
        if inner.startswith(END):
            self.held, self.state = inner[len(END) :], self.blanks
            return True
        if END.startswith(inner) and not final:
            return False
        self.held, self.state = "" if END.startswith(inner) else inner, self.text
        return bool(self.held)


HARMONY = Harmony()
