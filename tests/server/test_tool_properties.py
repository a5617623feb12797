"""In every form, whatever a text holds and however it is cut: whole and streamed agree, and nothing is lost."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from tool_texts import NAMES, cut, read

from specserve_server.tools.formats import FORMATS
from specserve_server.tools.reading import CallReading

MARKS = (
    *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "<|python_tag|>", "[{", "}]", '"', "\\"),
    *(
        "{",
        "}",
        "[",
        "]",
        ",",
        ";",
        ":",
        "\n",
        " ",
        "\t",
        "é",
        "🙂",
        '{"name": "f", ',
        '"arguments": ',
        '"parameters": ',
    ),
    *("f", "nope", '"name": "g"', "null", "1", '{"a": 1}', '"{\\"a\\": 1}"', "<tool", "[TOOL_", "text"),
)
FAMILY_MARKS = tuple(
    {mark for form in FORMATS.values() for mark in (*form.marks, form.trigger, form.end, form.begin("f")) if mark}
    | {
        "<function=f>",
        "<parameter=a>",
        "</parameter>",
        "</function>",
        "f(",
        "a=",
        "')",
        "'",
        "call:f{",
        "a:",
        "functools[",
    }
    | {"True", "None", "\\u00e9", "\\x", "```", "print(", " to=functions.f", "<|constrain|>json", "}}", "1.", '"""'}
)
CUTS = st.lists(st.integers(0, 10**4), max_size=12)
WORDS = st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=8).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(WORDS, VALUES, max_size=3)
FORMS = st.sampled_from(sorted(FORMATS))
JSON_FORMS = st.sampled_from(sorted(name for name, form in FORMATS.items() if form.style == "json"))
OTHER_FORMS = st.sampled_from(sorted(name for name, form in FORMATS.items() if form.style != "json"))
PLAIN = st.text("abc \n\\'\"{}[],:é🙂", max_size=8)
"""Nothing escapes in some forms: without their marks, and with no blanks that they strip."""
PLAIN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "key_2"]), inner, max_size=2),
    max_leaves=6,
)
PLAIN_OBJECTS = st.dictionaries(st.sampled_from(["a", "b", "some_key"]), PLAIN_VALUES, max_size=3)
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def told(text: str) -> list[str]:
    """Its characters that are neither blanks nor of the marks and punctuation around calls, in their order."""
    for mark in ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>"):
        text = text.replace(mark, "")
    return re.findall(r"\w", text)


@settings(max_examples=400)
@given(FORMS, st.lists(st.sampled_from(MARKS + FAMILY_MARKS) | st.text(max_size=3), max_size=25).map("".join), CUTS)
def test_any_text_is_read_alike_whole_and_in_pieces(form: str, text: str, cuts: list[int]) -> None:
    whole = read(FORMATS[form], [text])
    assert whole == read(FORMATS[form], cut(text, cuts)) == read(FORMATS[form], [*text, ""])
    if not whole[1]:
        assert whole[0] == text, "without a call nothing is taken away"


@settings(max_examples=300)
@given(
    JSON_FORMS,
    st.lists(st.tuples(st.sampled_from(sorted(NAMES)), OBJECTS), min_size=1, max_size=3),
    CUTS,
    st.booleans(),
)
def test_calls_come_out_as_they_were_written(
    form: str, calls: list[tuple[str, dict[str, object]]], cuts: list[int], escapes: bool
) -> None:
    kind = FORMATS[form]
    calls = calls[:1] if kind.takes_one else calls
    dumped = [(name, json.dumps(arguments, ensure_ascii=escapes)) for name, arguments in calls]
    text = kind.separator.join(f"{kind.begin(name)}{arguments}{kind.end}" for name, arguments in dumped)
    for pieces in ([text], [*text, ""], cut(text, cuts)):
        assert read(kind, pieces) == ("", dumped)


@settings(max_examples=400)
@given(OTHER_FORMS, st.lists(st.tuples(st.sampled_from(sorted(NAMES)), PLAIN_OBJECTS), min_size=1, max_size=3), CUTS)
def test_calls_that_are_not_written_as_json_come_out_as_json(
    form: str, calls: list[tuple[str, dict[str, object]]], cuts: list[int]
) -> None:
    kind = FORMATS[form]
    text = kind.separator.join(kind.written(name, arguments) for name, arguments in calls)
    schemas: dict[str, dict[str, object]] = {}
    for name, arguments in calls[::-1]:
        types = {key: {"type": TYPES.get(type(value), "null")} for key, value in arguments.items()}
        schemas[name] = {"properties": types}
    calls = [(name, arguments) for name, arguments in calls if fits(schemas[name], arguments)]
    text = kind.separator.join(kind.written(name, arguments) for name, arguments in calls)
    reading = CallReading(form=kind, names=schemas)
    for pieces in ([text], [*text, ""], cut(text, cuts)):
        shown, found = read(reading, pieces)
        assert (shown, [(name, json.loads(arguments)) for name, arguments in found]) == ("", calls)


def fits(schema: dict[str, object], arguments: dict[str, object]) -> bool:
    """Each value has the type of the schema: the form has no types, and tells them by it."""
    given = schema["properties"]
    assert isinstance(given, dict)
    return all(given.get(key) == {"type": TYPES.get(type(value), "null")} for key, value in arguments.items())


@settings(max_examples=300)
@given(JSON_FORMS, st.dictionaries(st.sampled_from(["name", "x", "type"]), VALUES, max_size=3), OBJECTS, WORDS)
def test_what_is_nearly_a_call_loses_no_word(
    form: str, others: dict[str, object], arguments: dict[str, object], after: str
) -> None:
    kind = FORMATS[form]
    opening = kind.begin("f").partition("{")[0] if "{" in kind.begin("f") else kind.trigger
    written = json.dumps({**others, "arguments": arguments}, ensure_ascii=False)
    text = f"{opening}{written}{after}"
    shown, calls = read(kind, [text])
    assert read(kind, [*text, ""]) == (shown, calls)
    if not calls:
        assert shown == text
    elif len(calls) == 1 and "name" not in after and "[" not in after:
        assert set(told(after)) <= set(told(shown + calls[0][1]))
