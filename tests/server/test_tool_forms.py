"""A call names an offered tool and has the keys of a call; what is none stays text, whole, in every form."""

from __future__ import annotations

import json

import pytest
from tool_texts import cut, read

from specserve_server.tools.formats import HERMES, LLAMA3, MISTRAL, MISTRAL_V11

F = ("f", '{"a": 1}')
HERMES_F = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
V11 = {
    "one": ('[TOOL_CALLS]f[ARGS]{"a": 1}', "", [F]),
    "several": ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{}', "", [F, ("g", "{}")]),
    "with an id": ('[TOOL_CALLS]f[CALL_ID]a1B2c3d4E[ARGS]{"a": 1}', "", [F]),
    "behind text": ('Well. [TOOL_CALLS]f[ARGS]{"a": 1}', "Well. ", [F]),
    "without its mark": ('[TOOL_CALLS]f{"a": 1}', "", [F]),
    "marks in a string": ('[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]g"}', "", [("f", '{"a": "[TOOL_CALLS]g"}')]),
    "an unknown name": ('[TOOL_CALLS]nope[ARGS]{"a": 1}', '[TOOL_CALLS]nope[ARGS]{"a": 1}', []),
    "a known and an unknown": ('[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]h[ARGS]{}', "[TOOL_CALLS]h[ARGS]{}", [F]),
    "no arguments": ("[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]f[ARGS]", []),
    "twice its trigger": ('[TOOL_CALLS][TOOL_CALLS]f[ARGS]{"a": 1}', "[TOOL_CALLS]", [F]),
    "cut off": ('[TOOL_CALLS]f[ARGS]{"a', "", [("f", '{"a')]),
    "just begun": ("[TOOL_CALLS]weath", "[TOOL_CALLS]weath", []),
    "a list, as older models write": ('[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]', "", [F]),
}  # fmt: skip


@pytest.mark.parametrize("form", [MISTRAL_V11, MISTRAL], ids=lambda form: form.name)
@pytest.mark.parametrize("name", V11)
def test_mistrals_newer_form_is_read(form, name):
    whole, text, calls = V11[name]
    assert read(form, [whole]) == (text, calls)
    assert read(form, [*whole, ""]) == (text, calls)


NO_CALLS = (
    (LLAMA3, '{"name": "Bob", "age": 31}'),
    (LLAMA3, '{"name": "Bob", "parameters": {}}'),
    (LLAMA3, '{"name": "f", "age": 31}'),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}, "age": 31}'),
    (LLAMA3, '{"age": 31, "name": "f", "parameters": {"a": 1}}'),
    (LLAMA3, '{"name": "f", "parameters": {}, "arguments": {"a": 1}}'),
    (LLAMA3, '{"name": "f", "name": "g", "parameters": {}}'),
    (LLAMA3, '{"name": "f"}'),
    (LLAMA3, '{"name": ["f"], "parameters": {}}'),
    (LLAMA3, '  {"name": "f", "parameters": {"a": 1} and so on'),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}, "ty'),
    (LLAMA3, '<|python_tag|>print("x")'),
    (LLAMA3, '[{"name": "f", "parameters": {}}]'),
    (HERMES, '<tool_call>{"name": "nope", "arguments": {"a": 1}}</tool_call>'),
    (HERMES, '<tool_call>{"arguments": {"a": "</tool_call>"}, "name": "nope"}</tool_call>'),
    (HERMES, '<tool_call>{"name": "f", "age": 31}</tool_call>'),
    (HERMES, '<tool_call>{"name": f, "arguments": {}}</tool_call>'),
    (HERMES, "<tool_call>\n\nno JSON\n</tool_call>"),
    (HERMES, f"<tool_call>{' ' * 9000}no JSON</tool_call>"),
    (HERMES, '<tool_call>{"name": "f", "arguments": None}</tool_call>'),
    (HERMES, '<tool_call>{"arguments": {"a": 1}'),
    (MISTRAL, '[TOOL_CALLS][{"name": "nope", "arguments": {}}]'),
    (MISTRAL, "[TOOL_CALLS][]"),
    (MISTRAL, "[TOOL_CALLS] is how Mistral's models begin {calls}."),
)


@pytest.mark.parametrize(("form", "text"), NO_CALLS, ids=lambda value: str(getattr(value, "name", value))[:60])
def test_what_is_no_call_stays_text(form, text):
    assert read(form, [text]) == (text, [])
    assert read(form, [*text, ""]) == (text, [])


IN_PART = (
    (HERMES, HERMES_F.replace("}}", '}, "thought": "x"}'), ', "thought": "x"}</tool_call>', [F]),
    (HERMES, f'{HERMES_F}<tool_call>{{"name": "nope"}}</tool_call>', '<tool_call>{"name": "nope"}</tool_call>', [F]),
    (HERMES, f"<tool_call>{HERMES_F}", "<tool_call>", [F]),
    (HERMES, HERMES_F.replace("{", '{"id": "c1", "type": "function", ', 1), "", [F]),
    (HERMES, '<tool_call>{"name": "g"}</tool_call>', "", [("g", "{}")]),
    (MISTRAL, f'[TOOL_CALLS][{{"name": "f", "arguments": {F[1]}}}, {{"name": "no"}}] x', ', {"name": "no"}] x', [F]),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}}; {"answer": 42}', '; {"answer": 42}', [F]),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}}, as I said', ", as I said", [F]),
    (LLAMA3, '{"name": "f", "parameters": {"a": 1}', "", [F]),
    (LLAMA3, '{"type": "function", "name": "f", "parameters": {"a": 1}}', "", [F]),
)


@pytest.mark.parametrize(("form", "whole", "text", "calls"), IN_PART)
def test_what_is_a_call_in_part_loses_nothing(form, whole, text, calls):
    if whole.endswith("as I said"):
        text = text.lstrip()
    assert read(form, [whole]) == (text, calls)
    assert read(form, [*whole, ""]) == (text, calls)


ARGUMENTS = (
    ('"{\\"a\\": \\"x\ny\\"}"', {"a": "x\ny"}),  # the text of an object, with a raw line break
    ('"{\\"a\\": \\"x\\ny\\"}"', {"a": "x\ny"}),  # with one that is escaped once
    ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
    ('{"a": "x\\\ny"}', {"a": "x\\\ny"}),
    ('"  {\\"a\\": 1}\\n"', {"a": 1}),
    ('{"a": "\\u00e9 é 🙂"}', {"a": "é é 🙂"}),
    ('"x\ny"', "x\ny"),
    ("[1, 2]", [1, 2]),
)


@pytest.mark.parametrize(("written", "meant"), ARGUMENTS)
@pytest.mark.parametrize("order", ['{"name": "f", "arguments": %s}', '{"arguments": %s, "name": "f"}'])
def test_arguments_are_valid_json_where_a_model_writes_raw_line_breaks(written, meant, order):
    whole = f"<tool_call>{order % written}</tool_call>"
    text, ((name, arguments),) = read(HERMES, [whole])
    assert (text, name, json.loads(arguments)) == ("", "f", meant)
    assert read(HERMES, [*whole, ""]) == (text, [(name, arguments)])


@pytest.mark.parametrize("written", ['"{\\"a\\": oops}"', '"{\\"a\\": "', '{"a": oops}', '"\\x"'])
def test_arguments_that_are_no_json_come_as_the_model_wrote_them(written):
    whole = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    text, ((name, arguments),) = read(HERMES, [whole])
    assert name == "f"
    assert arguments in (written, '{"a": oops}', '{"a":')
    assert read(HERMES, cut(whole, range(len(whole)))) == (text, [(name, arguments)])
