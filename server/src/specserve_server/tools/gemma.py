"""Gemma's forms: `call:NAME{key:value,...}` between two marks, with a mark at both ends of a string, which nothing
escapes; keys have no quotes.

FunctionGemma: `<start_function_call>call:NAME{key:<escape>text<escape>}<end_function_call>`; source:
https://ai.google.dev/gemma/docs/functiongemma/formatting-and-best-practices. Gemma 4:
`<|tool_call>call:NAME{key:<|"|>text<|"|>}<tool_call|>`; source: its chat template, and vLLM's parser `gemma4`.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, ClassVar

from specserve_server.tools.form import ToolForm
from specserve_server.tools.python_value import MAX_SCALAR, read_string, skip_blanks
from specserve_server.tools.read_calls import MAX_DEPTH, MAX_NAME, ReadCalls
from specserve_server.tools.source import NoCallError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from specserve_server.tools.source import Reading

NAME = re.compile(r"[\w.-]*")
KEY = re.compile(r"[^:{}\[\],<>\"\n]*")
BARE = re.compile(r"[^,{}\[\]<\"\n]*")
TEXT = re.compile(r"[^<]*")


class Gemma(ToolForm):
    """`quote`: at both ends of a string. `last_mark`: behind the call."""

    quote: ClassVar[str]
    last_mark: ClassVar[str]

    def begin(self, name: str) -> str:
        return f"{self.trigger}call:{name}{{"

    def written(self, name: str, arguments: Mapping[str, object]) -> str:
        return f"{self.begin(name)}{members(arguments, self.quote)}{self.end}"

    def stream(self, names: Collection[str]) -> GemmaStream:
        return GemmaStream(names, self)

    def is_in(self, written: str, name: str) -> bool:
        return self.begin(name) in written


class FunctionGemma(Gemma):
    name = "functiongemma"
    style = "gemma:<escape>"
    trigger = "<start_function_call>"
    quote, last_mark = "<escape>", "<end_function_call>"
    end = f"}}{last_mark}"
    marks: ClassVar[tuple[str, ...]] = (trigger, quote, last_mark)
    stops: ClassVar[tuple[str, ...]] = ("<start_function_response>",)
    list_marks = ("<start_function_declaration>", "<end_function_declaration>")
    result_marks = ("<start_function_response>", "<end_function_response>")


class Gemma4(Gemma):
    name = "gemma4"
    style = 'gemma:<|"|>'
    trigger = "<|tool_call>"
    quote, last_mark = '<|"|>', "<tool_call|>"
    end = f"}}{last_mark}"
    marks: ClassVar[tuple[str, ...]] = (trigger, quote, last_mark)
    stops: ClassVar[tuple[str, ...]] = ("<|tool_response>",)
    list_marks = ("<|tool>", "<tool|>")
    result_marks = ("<|tool_response>", "<tool_response|>")


class GemmaStream(ReadCalls):
    def __init__(self, names: Collection[str], form: Gemma) -> None:
        super().__init__(names)
        self.triggers, self.form = (form.trigger,), form

    def read(self) -> Reading[None]:
        source = self.source
        yield from skip_blanks(self)
        yield from source.expect("call:")
        self.begin_call((yield from source.run(NAME, MAX_NAME)))
        yield from source.expect("{")
        yield from self.read_object("", 1)
        yield from skip_blanks(self)
        yield from source.closes(self.form.last_mark)

    def read_object(self, before: str, depth: int) -> Reading[None]:
        """From behind its brace on."""
        source, shown = self.source, before + "{"
        while True:
            yield from skip_blanks(self)
            if (yield from source.accept("}")):
                break
            key = yield from self.read_key()
            yield from skip_blanks(self)
            yield from source.expect(":")
            yield from self.read_value(f"{shown}{dumped(key)}: ", depth)
            shown = ", "
            yield from skip_blanks(self)
            if not (yield from source.accept(",")):
                yield from source.expect("}")
                break
        self.show(f"{shown}}}" if shown.endswith("{") else "}")

    def read_key(self) -> Reading[str]:
        source, quote = self.source, self.form.quote
        mark = yield from source.accept(quote, '"')
        key = yield from source.run(KEY, MAX_NAME)
        if not key:
            raise NoCallError
        if mark:
            yield from source.expect(mark)
        return key.strip()

    def read_value(self, before: str, depth: int) -> Reading[None]:
        source = self.source
        yield from skip_blanks(self)
        if (yield from source.accept(self.form.quote)):
            self.show(before + '"')
            yield from self.read_text()
            self.show('"')
            return
        opening = yield from source.accept("{", "[")
        if opening and depth == MAX_DEPTH:
            raise NoCallError
        if opening == "{":
            yield from self.read_object(before, depth + 1)
        elif opening == "[":
            yield from self.read_list(before, depth + 1)
        elif (yield from source.peek()) == '"':
            self.show(before + '"')
            yield from read_string(self)
        else:
            word = yield from source.run(BARE, MAX_SCALAR)
            if not word.strip():
                raise NoCallError
            self.show(before + bare_json(word.strip()))

    def read_list(self, before: str, depth: int) -> Reading[None]:
        source, shown = self.source, before + "["
        while True:
            yield from skip_blanks(self)
            if (yield from source.accept("]")):
                break
            yield from self.read_value(shown, depth)
            shown = ", "
            yield from skip_blanks(self)
            if not (yield from source.accept(",")):
                yield from source.expect("]")
                break
        self.show(f"{shown}]" if shown.endswith("[") else "]")

    def read_text(self) -> Reading[None]:
        """The text of a string and the mark behind it."""
        source, quote = self.source, self.form.quote
        while True:
            yield from source.flow(TEXT, self.show_text)
            if (yield from source.ends(quote)):
                return
            self.show_text((yield from source.peek()))
            source.at += 1


def members(arguments: Mapping[str, object], quote: str) -> str:
    return ",".join(f"{key}:{value_text(value, quote)}" for key, value in arguments.items())


def value_text(value: object, quote: str) -> str:
    """As the templates write it."""
    if isinstance(value, str):
        return f"{quote}{value}{quote}"
    if isinstance(value, dict):
        return f"{{{members(value, quote)}}}"
    if isinstance(value, list):
        return f"[{','.join(value_text(each, quote) for each in value)}]"
    return dumped(value)


def bare_json(word: str) -> str:
    """A number or a word of JSON, and else a text of which the marks were forgotten."""
    if word == "None":  # as templates write it
        return "null"
    try:
        value = json.loads(word, parse_constant=str)
    except (ValueError, RecursionError):
        return dumped(word)
    return dumped(word) if isinstance(value, str) else word


def dumped(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


FUNCTION_GEMMA, GEMMA4 = FunctionGemma(), Gemma4()
