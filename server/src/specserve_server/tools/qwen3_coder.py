"""Qwen3-Coder's form, also Qwen 3.5's: every parameter between tags, as text whose type the schema says.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

Source: the chat template of Qwen/Qwen3-Coder-30B-A3B-Instruct. The outer tags may be missing, as the models leave them
out at times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.form import ToolForm
from specserve_server.tools.python_value import skip_blanks
from specserve_server.tools.read_calls import MAX_NAME, ReadCalls
from specserve_server.tools.source import NoCallError
from specserve_server.tools.typed_values import parameter_types, typed_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from specserve_checks.json_types import JsonObject
    from specserve_server.tools.source import Reading

TRIGGER, END = "<tool_call>", "</tool_call>"
FUNCTION, FUNCTION_END = "<function=", "</function>"
PARAMETER, PARAMETER_END = "<parameter=", "</parameter>"
NAME = re.compile(r"[^<>\n]*")
VALUE = re.compile(r"[^<\n]*")


class Qwen3Coder(ToolForm):
    name = "qwen3-coder"
    style = "qwen_xml"
    trigger = TRIGGER
    marks: ClassVar[tuple[str, ...]] = (TRIGGER, END)
    end = f"{FUNCTION_END}\n{END}"
    separator = "\n"
    list_marks = ("<tools>\n", "\n</tools>")
    result_marks = ("<tool_response>\n", "\n</tool_response>")

    def begin(self, name: str) -> str:
        return f"{TRIGGER}\n{FUNCTION}{name}>\n"

    def written(self, name: str, arguments: Mapping[str, object]) -> str:
        texts = {key: value if isinstance(value, str) else dumped(value) for key, value in arguments.items()}
        values = (f"{PARAMETER}{key}>\n{text}\n{PARAMETER_END}\n" for key, text in texts.items())
        return f"{self.begin(name)}{''.join(values)}{self.end}"

    def stream(self, names: Collection[str]) -> Qwen3CoderStream:
        return Qwen3CoderStream(names)

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf"{TRIGGER}\s*{FUNCTION}{name}>", written))


class Qwen3CoderStream(ReadCalls):
    triggers = (TRIGGER, FUNCTION)

    def read(self) -> Reading[None]:
        source = self.source
        if self.trigger == TRIGGER:
            yield from skip_blanks(self)
            yield from source.expect(FUNCTION)
        while True:
            yield from self.read_call()
            yield from skip_blanks(self)
            if self.trigger == TRIGGER and (yield from source.closes(END)):
                return
            if not (yield from source.accept(FUNCTION)):
                return

    def read_call(self) -> Reading[None]:
        source, shown = self.source, "{"
        name = yield from source.run(NAME, MAX_NAME)
        yield from source.expect(">")
        self.begin_call(name)
        while True:
            yield from skip_blanks(self)
            if (yield from source.accept(PARAMETER)):
                key = yield from source.run(NAME, MAX_NAME)
                yield from source.expect(">")
                yield from self.read_parameter(name, key, shown + dumped(key) + ": ")
                shown = ", "
            elif (yield from source.ends(FUNCTION_END, PARAMETER)) or (yield from source.peek(len(END))) == END:
                break
            else:
                raise NoCallError
        self.show("{}" if shown == "{" else "}")

    def read_parameter(self, tool: str, key: str, before: str) -> Reading[None]:
        """A string is shown as it comes, another value once it is complete."""
        source, types = self.source, parameter_types(self.schema(tool), key)
        yield from source.accept("\n")
        if types == {"string"}:
            self.show(before + '"')
            yield from self.read_text(self.show_text)
            self.show('"')
            return
        pieces: list[str] = []

        def keep(text: str) -> None:
            pieces.append(text)
            source.unshown = source.at

        self.show(before)
        try:
            yield from self.read_text(keep)
        except NoCallError:  # cut off: as it was written
            self.show("".join(pieces))
            raise
        self.show(typed_json("".join(pieces), types))

    def read_text(self, show: Callable[[str], None]) -> Reading[None]:
        """The text up to the tag behind it, without the line break in front of that."""
        source = self.source
        while True:
            yield from source.flow(VALUE, show)
            if (yield from source.ends(f"\n{PARAMETER_END}", PARAMETER_END)):
                return
            show((yield from source.peek()))
            source.at += 1

    def schema(self, tool: str) -> JsonObject:
        found = self.names.get(tool) if isinstance(self.names, Mapping) else None
        return found if isinstance(found, dict) else {}


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


QWEN3_CODER = Qwen3Coder()
