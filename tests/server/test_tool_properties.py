"""In every form, whatever a text holds and however it is cut: whole and streamed agree, and nothing is lost."""

from __future__ import annotations

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st
from tool_texts import NAMES, cut, read

from specserve_server.tools.formats import FORMATS

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
CUTS = st.lists(st.integers(0, 10**4), max_size=12)
WORDS = st.lists(st.sampled_from(MARKS) | st.text(max_size=4), max_size=8).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(WORDS, VALUES, max_size=3)
FORMS = st.sampled_from(sorted(FORMATS))


def told(text: str) -> list[str]:
    """Its characters that are neither blanks nor of the marks and punctuation around calls, in their order."""
    for mark in ("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>"):
        text = text.replace(mark, "")
    return re.findall(r"\w", text)


@settings(max_examples=400)
@given(FORMS, st.lists(st.sampled_from(MARKS) | st.text(max_size=3), max_size=25).map("".join), CUTS)
def test_any_text_is_read_alike_whole_and_in_pieces(form: str, text: str, cuts: list[int]) -> None:
    whole = read(FORMATS[form], [text])
    assert whole == read(FORMATS[form], cut(text, cuts)) == read(FORMATS[form], [*text, ""])
    if not whole[1]:
        assert whole[0] == text, "without a call nothing is taken away"


@settings(max_examples=300)
@given(FORMS, st.lists(st.tuples(st.sampled_from(sorted(NAMES)), OBJECTS), min_size=1, max_size=3), CUTS, st.booleans())
def test_calls_come_out_as_they_were_written(
    form: str, calls: list[tuple[str, dict[str, object]]], cuts: list[int], escapes: bool
) -> None:
    kind = FORMATS[form]
    calls = calls[:1] if kind.takes_one else calls
    dumped = [(name, json.dumps(arguments, ensure_ascii=escapes)) for name, arguments in calls]
    text = kind.separator.join(f"{kind.begin(name)}{arguments}{kind.end}" for name, arguments in dumped)
    for pieces in ([text], [*text, ""], cut(text, cuts)):
        assert read(kind, pieces) == ("", dumped)


@settings(max_examples=300)
@given(FORMS, st.dictionaries(st.sampled_from(["name", "x", "type"]), VALUES, max_size=3), OBJECTS, WORDS)
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
