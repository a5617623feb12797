"""Calls as models of several families write them, well and badly: what is a call, what stays text, and how fast."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from tool_texts import cut, read

from specserve_server.tools.formats import FORMATS
from specserve_server.tools.reading import CallReading

F, G = ("f", '{"a": 1}'), ("g", "{}")
ONE = '{"name": "f", "arguments": {"a": 1}}'
TEXTS: dict[str, tuple[str, str, str, list[tuple[str, str]]]] = {
    # form, text, text that is left, calls
    "granite": ("granite", f"<|tool_call|>[{ONE}]", "", [F]),
    "granite, two": ("granite", f'<|tool_call|>[{ONE}, {{"name": "g", "arguments": {{}}}}]', "", [F, G]),
    "granite, no list": ("granite", f"Well. <|tool_call|> {ONE}", "Well. ", [F]),
    "granite, a mark in a string": ("granite", f"<|tool_call|>[{ONE.replace('1', json.dumps('<|tool_call|>]'))}]", "",
                                    [("f", '{"a": "<|tool_call|>]"}')]),
    "granite, no call": ("granite", "<|tool_call|>[1, 2]", "<|tool_call|>[1, 2]", []),
    "granite, text behind": ("granite", f"<|tool_call|>[{ONE}] Done", "Done", [F]),
    "phi4": ("phi4-mini", f"<|tool_call|>[{ONE}]<|/tool_call|>", "", [F]),
    "phi4, single": ("phi4-mini", f"<|tool_call|>{ONE}<|/tool_call|><|tool_call|>{ONE}<|/tool_call|>", "", [F, F]),
    "phi4, functools": ("phi4-mini", f"functools[{ONE}]", "", [F]),
    "phi4, only a word": ("phi4-mini", "Use functools[0].", "Use functools[0].", []),
    "hermes, a list": ("hermes", f"<tool_call>[{ONE}, {ONE}]</tool_call>", "", [F, F]),
    "hermes, a bracket behind": ("hermes", f"<tool_call>{ONE}</tool_call>]", "]", [F]),
    "qwen": ("qwen3-coder", "Ok.\n<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>",
             "Ok.\n", [F]),
    "qwen, on one line": ("qwen3-coder", "<tool_call><function=f><parameter=a>1</parameter></function></tool_call>", "", [F]),
    "qwen, outer tags missing": ("qwen3-coder", "<function=f>\n<parameter=a>\n1\n</parameter>\n</function>", "", [F]),
    "qwen, an inner end missing": ("qwen3-coder", "<tool_call><function=f><parameter=a>1</parameter></tool_call>", "", [F]),
    "qwen, none": ("qwen3-coder", "<tool_call>\n<function=g>\n</function>\n</tool_call>", "", [G]),
    "qwen, two in one": ("qwen3-coder", "<tool_call><function=g></function><function=g></function></tool_call>", "", [G, G]),
    "qwen, an unknown tool": ("qwen3-coder", "<tool_call><function=no></function>", "<tool_call><function=no></function>", []),
    "qwen, tags in a value": ("qwen3-coder", "<function=f><parameter=a>\n<b>\n</b> </par\n\n</parameter></function>", "",
                              [("f", '{"a": "<b>\\n</b> </par\\n"}')]),
    "qwen, cut off": ("qwen3-coder", "<function=f>\n<parameter=a>\nxy\n</para", "", [("f", '{"a": xy')]),
    "qwen, no tags": ("qwen3-coder", "<function=f>\nhello", "<function=f>\nhello", []),
    "olmo": ("olmo3", "<function_calls>f(a=1)\ng()</function_calls>", "", [F, G]),
    "olmo, python words": ("olmo3", "<function_calls>f(a=[True, None, (1, 2.50), 'it\\'s', {'k': \"v\\n\"},],)</function_calls>",
                           "", [("f", '{"a": [true, null, [1, 2.50], "it\'s", {"k": "v\\n"}]}')]),
    "olmo, escapes": ("olmo3", "<function_calls>f(a='\\u00e9\\x41\\U0001F642\\q\\ud83d\\ude42\"')</function_calls>",
                      "", [("f", '{"a": "\\u00e9\\u0041🙂\\\\q\\ud83d\\ude42\\""}')]),
    "olmo, three quotes": ("olmo3", '<function_calls>f(a="""x"y""", b="")</function_calls>', "",
                           [("f", '{"a": "x\\"y", "b": ""}')]),
    "olmo, an expression": ("olmo3", "<function_calls>f(a=b + 1)</function_calls>", "<function_calls>f(a=b + 1)</function_calls>", []),
    "olmo, one that is none": ("olmo3", "<function_calls>f(a=1)\nno(2)</function_calls>", "\nno(2)</function_calls>", [F]),
    "olmo, positional": ("olmo3", "<function_calls>f(1)</function_calls>", "<function_calls>f(1)</function_calls>", []),
    "olmo, end missing": ("olmo3", "<function_calls>f(a=1)", "", [F]),
    "olmo, numbers": ("olmo3", "<function_calls>f(a=[-1, 1e3, 1_000, 0x10, .5])</function_calls>", "",
                      [("f", '{"a": [-1, 1e3, 1000, 16, 0.5]}')]),
    "olmo, infinite": ("olmo3", "<function_calls>f(a=1e999999)</function_calls>", "", [("f", '{"a": 1e999999}')]),
    "olmo, not a number": ("olmo3", "<function_calls>f(a=nan)", "<function_calls>f(a=nan)", []),
    "tool_code": ("tool-code", "Ok.\n```tool_code\nf(a=1)\n```\nDone", "Ok.\nDone", [F]),
    "tool_code, printed": ("tool-code", "```tool_code\nprint(f(a=1))\n```", "", [F]),
    "tool_code, code": ("tool-code", "```tool_code\nx = f(a=1)\n```", "```tool_code\nx = f(a=1)\n```", []),
    "functiongemma": ("functiongemma", "<start_function_call>call:f{a:1}<end_function_call>", "", [F]),
    "functiongemma, text": ("functiongemma", "<start_function_call>call:f{a:<escape>{}, <b>\"<escape>,b:[<escape>x<escape>,true]}"
                            "<end_function_call>", "", [("f", '{"a": "{}, <b>\\"", "b": ["x", true]}')]),
    "functiongemma, bare": ("functiongemma", "<start_function_call>call:f{a:/tmp/x y}<end_function_call>", "", [("f", '{"a": "/tmp/x y"}')]),
    "gemma4": ("gemma4", '<|tool_call>call:f{a:1}<tool_call|><|tool_call>call:g{}<tool_call|>', "", [F, G]),
    "gemma4, nested": ("gemma4", '<|tool_call>call:f{a:{b:<|"|>x<|"|>,c:[]},d:{}}<tool_call|>', "",
                       [("f", '{"a": {"b": "x", "c": []}, "d": {}}')]),
    "gemma4, JSON strings": ("gemma4", '<|tool_call>call:f{a: "x\\"y"}<tool_call|>', "", [("f", '{"a": "x\\"y"}')]),
    "gemma4, quoted keys": ("gemma4", '<|tool_call>call:f{<|"|>a<|"|>:1}<tool_call|>', "", [F]),
    "gemma4, cut off": ("gemma4", '<|tool_call>call:f{a:<|"|>xy<|"', "", [("f", '{"a": "xy')]),
    "gemma4, no call": ("gemma4", "<|tool_call>call:no{a:1}<tool_call|>", "<|tool_call>call:no{a:1}<tool_call|>", []),
    "gemma4, none": ("gemma4", "<|tool_call>call:f{a:nul", "", [("f", '{"a": "nul"')]),
    "harmony": ("harmony", '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>', "", [F]),
    "harmony, an unknown tool": ("harmony", "<|channel|>commentary to=functions.no<|message|>{}", "<|channel|>commentary to=functions.no<|message|>{}", []),
    "harmony, no arguments": ("harmony", "<|channel|>commentary to=functions.f<|message|>x", "<|channel|>commentary to=functions.f<|message|>x", []),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_calls_are_read_alike_however_the_text_is_cut(name: str) -> None:
    form, text, left, calls = TEXTS[name]
    expected = (left, calls)
    assert read(FORMATS[form], [text]) == expected
    assert read(FORMATS[form], [*text, ""]) == expected
    for at in range(len(text) + 1):
        assert read(FORMATS[form], [text[:at], text[at:]]) == expected, text[:at]
    rng = random.Random(name)
    for _ in range(30):
        assert read(FORMATS[form], cut(text, rng.sample(range(len(text) + 1), 5))) == expected


TYPED = (
    # schema of the parameter, text, value
    ({"type": "string"}, "5", "5"),
    ({"type": "integer"}, "5", 5),
    ({"type": "integer"}, "five", "five"),
    ({"type": "number"}, "5", 5),
    ({"type": "boolean"}, "True", True),
    ({"type": "boolean"}, "false", False),
    ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "5", "5"),
    ({"type": "array"}, '[1, "x"]', [1, "x"]),
    ({"type": "object"}, '{"k": null}', {"k": None}),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "None", None),
    ({"enum": ["1", "2"]}, "1", "1"),
    ({"enum": [1, 2]}, "1", 1),
    ({"$ref": "#/$defs/N"}, "5", 5),
    ({"$ref": "#/$defs/missing"}, "5", 5),
    ({}, "[]", []),
    ({}, "a [b", "a [b"),
    ({}, "NaN", "NaN"),
    (None, "5", "5"),
)


@pytest.mark.parametrize(("schema", "text", "value"), TYPED)
def test_the_schema_tells_the_type_of_a_parameter_that_is_text(schema: Any, text: str, value: object) -> None:
    tool = {"properties": {"b": {}} | ({} if schema is None else {"a": schema}), "$defs": {"N": {"type": "integer"}}}
    reading = CallReading(form=FORMATS["qwen3-coder"], names={"f": tool})
    whole = f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"
    for pieces in ([whole], [*whole, ""]):
        left, ((_, arguments),) = read(reading, pieces)
        assert (left, json.loads(arguments)) == ("", {"a": value})


def test_a_string_is_shown_while_it_is_generated() -> None:
    tool = {"properties": {"a": {"type": "string"}}}
    begun = {
        "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=a>\n",
        "olmo3": "<function_calls>f(a='",
        "tool-code": '```tool_code\nf(a="',
        "gemma4": '<|tool_call>call:f{a:<|"|>',
        "functiongemma": "<start_function_call>call:f{a:<escape>",
    }
    for form, text in begun.items():
        stream = CallReading(form=FORMATS[form], names={"f": tool}).stream()
        stream.push(text)
        (piece,) = stream.push("some\ttext").calls
        assert piece.arguments == "some\\ttext", form


HOSTILE = {
    "granite": ("<|tool_call|>", '<|tool_call|>[{"name": "f", "arguments": {"a": [', "[["),
    "phi4-mini": ("functools[", "<|tool_call|>[[", "{"),
    "qwen3-coder": (
        "<tool_call>",
        "<function=f>",
        "<function=f><parameter=a>",
        "</parameter>",
        "<tool_call>\n<function=",
    ),
    "olmo3": ("<function_calls>", "<function_calls>f(a=", "<function_calls>f(a=[", "[", "<function_calls>f(a='\\"),
    "tool-code": ("```tool_code\n", "```tool_code\nf(a={", "{1:"),
    "functiongemma": ("<start_function_call>", "<start_function_call>call:f{a:{", "a:{", "<escape>"),
    "gemma4": ("<|tool_call>", "<|tool_call>call:f{a:[", "[", '<|"|>', "<|tool_call>call:f{a:x"),
    "harmony": ("<|channel|>commentary to=functions.", "<|channel|>commentary to=functions.f<|message|>[", "<|call|>"),
}


@pytest.mark.parametrize("form", HOSTILE)
@pytest.mark.parametrize("size", [10**5, pytest.param(10**6, marks=pytest.mark.sweep)])
def test_a_long_hostile_text_takes_linear_time_and_is_kept(form: str, size: int) -> None:
    for repeated in (*HOSTILE[form], "x", "\n"):
        for first in ("", *HOSTILE[form]):
            seconds = [timed_read(form, first + repeated * (part // len(repeated))) for part in (size // 10, size)]
            assert seconds[1] < 10 * 4 * max(seconds[0], 0.01), (first, repeated)


def timed_read(form: str, text: str) -> float:
    start = time.process_time()
    shown, calls = read(FORMATS[form], [text])
    if not calls:
        assert shown == text
    return time.process_time() - start
