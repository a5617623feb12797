"""Calls as models of several families write them, well and badly: what is a call, what stays text, and how fast."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from family_texts import TEXTS
from tool_texts import cut, read

from specserve_server.tools.formats import FORMATS
from specserve_server.tools.reading import CallReading


@pytest.mark.parametrize("name", TEXTS)
def test_calls_are_read_alike_however_the_text_is_cut(name: str) -> None:
    form, text, left, calls = TEXTS[name]
    expected = (text if left is None else left, calls)
    assert read(FORMATS[form], [text]) == expected
    assert read(FORMATS[form], [*text, ""]) == expected
    for at in range(len(text) + 1):
        assert read(FORMATS[form], [text[:at], text[at:]]) == expected, text[:at]
    rng = random.Random(name)
    for _ in range(30):
        assert read(FORMATS[form], cut(text, rng.sample(range(len(text) + 1), 5))) == expected


DEFINED = {"N": {"type": "integer"}, "S": {"type": "string"}}
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
    ({"$ref": "#/$defs/S"}, "5", "5"),
    ({"$ref": "#/$defs/missing"}, "5", 5),
    ({}, "[]", []),
    ({}, "a [b", "a [b"),
    ({}, "NaN", "NaN"),
    (None, "5", "5"),
)


@pytest.mark.parametrize(("schema", "text", "value"), TYPED)
def test_the_schema_tells_the_type_of_a_parameter_that_is_text(schema: Any, text: str, value: object) -> None:
    tool = {"properties": {"b": {}} | ({} if schema is None else {"a": schema}), "$defs": DEFINED}
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
@pytest.mark.parametrize("size", [3 * 10**4, pytest.param(10**6, marks=pytest.mark.sweep)])
def test_a_long_hostile_text_takes_linear_time_and_is_kept(form: str, size: int) -> None:
    for repeated in (*HOSTILE[form], "x", "\n"):
        for first in ("", *HOSTILE[form]):
            short, long = (first + repeated * (part // len(repeated)) for part in (size // 10, size))
            # a collection of garbage may fall into one reading, not into all
            assert any(timed_read(form, long) < 10 * 4 * max(timed_read(form, short), 0.01) for _ in range(5))


def timed_read(form: str, text: str) -> float:
    start = time.thread_time()
    shown, calls = read(FORMATS[form], [text])
    if not calls:
        assert shown == text
    return time.thread_time() - start
