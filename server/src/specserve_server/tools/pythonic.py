"""Calls that are written as in Python, `name(key=value, ...)`, between two marks.

OLMo 3's form is `<function_calls>name(key=value)</function_calls>` with a call on each line; source: its chat template
(allenai/Olmo-3-7B-Instruct), which writes values as JSON. Gemma 3 has no form of its own: prompts of Google's guide
to function calling with Gemma let it write Python in a block "tool_code", sometimes within `print(...)`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.form import ToolForm
from specserve_server.tools.python_value import read_value, skip_blanks
from specserve_server.tools.read_calls import MAX_NAME, ReadCalls
from specserve_server.tools.source import NoCallError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from specserve_server.tools.source import Reading

NAME = re.compile(r"[\w.-]*")


class Pythonic(ToolForm):
    """`end`: that of a call and of the last mark."""

    style = "python"
    last_mark: ClassVar[str]

    def begin(self, name: str) -> str:
        return f"{self.trigger}{name}("

    def written(self, name: str, arguments: Mapping[str, object]) -> str:
        values = (f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in arguments.items())
        return f"{self.begin(name)}{', '.join(values)}{self.end}"

    def stream(self, names: Collection[str]) -> PythonicStream:
        return PythonicStream(names, self.trigger, self.last_mark)

    def is_in(self, written: str, name: str) -> bool:
        return bool(re.search(rf"{re.escape(self.trigger.rstrip())}\s*{name}\(", written))


class Olmo3(Pythonic):
    name = "olmo3"
    trigger = "<function_calls>"
    last_mark = "</function_calls>"
    marks: ClassVar[tuple[str, ...]] = (trigger, last_mark)
    end = ")</function_calls>"
    list_marks = ("<functions>", "</functions>")


class ToolCode(Pythonic):
    name = "tool-code"
    trigger = "```tool_code\n"
    last_mark = "```"
    end = ")\n```"
    separator = "\n"
    list_marks = ("```python\n", "\n```")
    result_marks = ("```tool_output\n", "\n```")


class PythonicStream(ReadCalls):
    def __init__(self, names: Collection[str], trigger: str, last_mark: str) -> None:
        super().__init__(names)
        self.triggers, self.last_mark = (trigger,), last_mark

    def read(self) -> Reading[None]:
        source = self.source
        yield from skip_blanks(self)
        in_list = yield from source.accept("[")
        while True:
            yield from skip_blanks(self)
            prints = yield from source.accept("print(")
            yield from self.read_call()
            if prints:
                yield from skip_blanks(self)
                yield from source.closes(")")
            yield from skip_blanks(self)
            if in_list and (yield from source.closes("]")):
                yield from skip_blanks(self)
            if (yield from source.closes(self.last_mark)):
                return
            yield from source.accept(",", ";")

    def read_call(self) -> Reading[None]:
        source, shown = self.source, "{"
        self.begin_call((yield from source.run(NAME, MAX_NAME)))
        yield from source.expect("(")
        while True:
            yield from skip_blanks(self)
            if (yield from source.accept(")")):
                break
            key = yield from source.run(NAME, MAX_NAME)
            yield from skip_blanks(self)
            if not key:
                raise NoCallError
            yield from source.expect("=")
            yield from skip_blanks(self)
            yield from read_value(self, f'{shown}"{key}": ')
            shown = ", "
            yield from skip_blanks(self)
            if not (yield from source.accept(",")):
                yield from source.expect(")")
                break
        self.show("{}" if shown == "{" else "}")


OLMO3, TOOL_CODE = Olmo3(), ToolCode()
