"""Tool calls are found in a text however it comes in pieces; what is none stays text."""

from __future__ import annotations

import json
import random

import pytest
from tool_texts import NAMES, cut, read, reading_of

from specserve_server.tools.formats import HERMES, LLAMA3, MISTRAL
from specserve_server.tools.json_value import JsonValue
from specserve_server.tools.reading import CallReading

ARGUMENTS = '{"city": "Par{is}\\"]", "days": [1, {"x": "}"}], "u": null}'
HERMES_CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
TWO = '{"name": "f", "%s": {"a": 1}}', '{"name": "g", "%s": {}}'
F_AND_G = [("f", '{"a": 1}'), ("g", "{}")]
TEXTS = {
    "hermes": (HERMES, HERMES_CALL, "", [("weather", ARGUMENTS)]),
    "hermes, text before": (HERMES, f"Let me see <b>. {HERMES_CALL}", "Let me see <b>. ", [("weather", ARGUMENTS)]),
    "hermes, two": (HERMES, f"{HERMES_CALL}\n{HERMES_CALL}", "", [("weather", ARGUMENTS)] * 2),
    "hermes, text behind": (HERMES, f"{HERMES_CALL}\n\nDone. ", "Done. ", [("weather", ARGUMENTS)]),
    "hermes, on one line": (HERMES, '<tool_call>{"name":"f","arguments":{}}</tool_call>', "", [("f", "{}")]),
    "hermes, another order": (HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', "", F_AND_G[:1]),
    "hermes, more keys": (
        HERMES,
        '<tool_call>{"type": "function", "name": "f", "parameters": {"a": 1}}</tool_call>',
        "",
        F_AND_G[:1],
    ),
    "hermes, null": (HERMES, '<tool_call>{"name": "f", "arguments": null}</tool_call>', "", [("f", "{}")]),
    "hermes, null first": (HERMES, '<tool_call>{"arguments": null, "name": "f"}</tool_call>', "", [("f", "{}")]),
    "hermes, a string": (
        HERMES,
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"}\\u00e9\\"}"}</tool_call>',
        "",
        [("f", '{"a": "}é"}')],
    ),
    "hermes, a string first": (
        HERMES,
        '<tool_call>{"arguments": "{\\"a\\": 1}", "name": "f"}</tool_call>',
        "",
        F_AND_G[:1],
    ),
    "hermes, a string that is no object": (
        HERMES,
        '<tool_call>{"name": "f", "arguments": "Paris"}</tool_call>',
        "",
        [("f", '"Paris"')],
    ),
    "hermes, a string, unfinished": (HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a', "", [("f", '"{\\"a')]),
    "hermes, null, then another": (
        HERMES,
        f'<tool_call>{{"name": "g", "arguments": null}}</tool_call>{HERMES_CALL}',
        "",
        [("g", "{}"), ("weather", ARGUMENTS)],
    ),
    "mistral, null and a string": (
        MISTRAL,
        '[TOOL_CALLS][{"name": "g", "arguments": null}, {"name": "f", "arguments": "{\\"a\\": 1}"}]',
        "",
        F_AND_G[::-1],
    ),
    "llama3, null": (LLAMA3, '{"name": "f", "parameters": null}', "", [("f", "{}")]),
    "llama3, a string": (LLAMA3, '{"name": "f", "parameters": "{\\"a\\": 1}"}', "", F_AND_G[:1]),
    "hermes, no call": (HERMES, "<tool_call>hello</tool_call> x", "<tool_call>hello</tool_call> x", []),
    "hermes, unfinished": (HERMES, '<tool_call>{"name": "f", "arguments": {"a', "", [("f", '{"a')]),
    "hermes, only calls, cut off": (
        CallReading(form=HERMES, names=NAMES, is_all=True),
        f'{HERMES_CALL}\n<tool_call>\n{{"na',
        "",
        [("weather", ARGUMENTS)],
    ),
    "hermes, only calls, just begun": (CallReading(form=HERMES, names=NAMES, is_all=True), "<tool_ca", "", []),
    "hermes, one call at most": (
        CallReading(form=HERMES, names=NAMES, most_calls=1),
        f"A {HERMES_CALL}\n{HERMES_CALL}",
        "A ",
        [("weather", ARGUMENTS)],
    ),
    "hermes, just begun": (HERMES, 'x <tool_call>{"na', 'x <tool_call>{"na', []),
    "hermes, nearly a trigger": (HERMES, "a < b and <tool_ca", "a < b and <tool_ca", []),
    "mistral": (MISTRAL, f'[TOOL_CALLS][{{"name": "g", "arguments": {ARGUMENTS}}}]', "", [("g", ARGUMENTS)]),
    "mistral, two": (MISTRAL, "[TOOL_CALLS] [" + ", ".join(TWO).replace("%s", "arguments") + "]", "", F_AND_G),
    "mistral, text": (MISTRAL, "[TOOL] is no call", "[TOOL] is no call", []),
    "llama3": (LLAMA3, f'{{"name": "weather", "parameters": {ARGUMENTS}}}', "", [("weather", ARGUMENTS)]),
    "llama3, marked": (LLAMA3, '<|python_tag|>{"name": "f", "parameters": {"a": 1}}', "", F_AND_G[:1]),
    "llama3, two": (LLAMA3, "; ".join(TWO).replace("%s", "parameters"), "", F_AND_G),
    "llama3, text": (LLAMA3, 'Hello {"name": "f", "parameters": {}}', 'Hello {"name": "f", "parameters": {}}', []),
    "llama3, another object": (LLAMA3, '{"answer": 42}', '{"answer": 42}', []),
}


@pytest.mark.parametrize("name", TEXTS)
def test_calls_are_found_whole_and_in_pieces(name):
    form, whole, text, calls = TEXTS[name]
    assert read(form, [whole]) == (text, calls)
    assert read(form, [*whole, ""]) == (text, calls)
    rng = random.Random(name)
    for _ in range(50):
        pieces = cut(whole, rng.sample(range(len(whole) + 1), min(4, len(whole))))
        assert read(form, pieces) == (text, calls), pieces


def test_arguments_come_as_they_are_generated():
    stream = reading_of(HERMES).stream()
    stream.push('<tool_call>{"name": "f", "arguments": {"a": ')
    (piece,) = stream.push('"some').calls
    assert (piece.index, piece.name, piece.arguments) == (0, None, '"some')


def test_text_is_held_back_only_where_a_trigger_may_begin():
    stream = reading_of(HERMES).stream()
    assert [stream.push(piece).text for piece in ("abc", " <", "b> <tool", "s>")] == ["abc", " ", "<b> ", "<tools>"]


@pytest.mark.parametrize("value", [{}, [], {"a": [{}]}, 'x\\"}', 12.5, None, True, [[["]"]]], {"": ""}])
@pytest.mark.parametrize("after", ["}", ", 1", " ]", "\n}"])
def test_the_end_of_a_value_is_found(value, after):
    text = json.dumps(value)
    found = JsonValue()
    assert found.take(text + after) == len(text)
    assert found.done
    by_character = JsonValue()
    assert sum(by_character.take(char) for char in text) == len(text)
