"""Arguments of calls that are not written as JSON: enforced by the schema in the forms of several families."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from grammar_cases import wanted

from specserve.errors import RequestError
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_server.generation.harmony import HARMONY
from specserve_server.tools.formats import FORMATS
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy_tokenizer import EOS_ID

if TYPE_CHECKING:
    from specserve.types import Reasoning

STYLED = [form for form in FORMATS.values() if form.style != "json"]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
        "unit": {"enum": ["c", "f"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "place": {"$ref": "#/$defs/P"},
    },
    "required": ["days"],
    "additionalProperties": False,
    "$defs": {"P": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
}
GOOD: tuple[dict[str, Any], ...] = (
    {"days": 7},
    {"city": 'Par<is\n"', "days": 7},
    {"days": 7, "unit": "c"},
    {"city": "", "days": 0, "unit": "f", "tags": ["abc", ""], "place": {"x": 1.5}},
    {"days": 7, "tags": []},
    {"days": 7, "place": {"x": -2}},
)
WRONG: tuple[dict[str, Any], ...] = (
    {},
    {"days": 77},
    {"days": "x"},
    {"city": "x"},
    {"days": 7, "unit": "k"},
    {"days": 7, "tags": ["abcd"]},
    {"days": 7, "tags": ["a", "b", "c"]},
    {"days": 7, "place": {}},
    {"days": 7, "other": 1},
)


def structure(form: Any, schema: Any) -> dict[str, Any]:
    return {"begin": form.begin("f"), "schema": schema, "end": form.end, "style": form.style}


def checker(toy_model: Any, *tags: dict[str, Any], reasoning: Reasoning | None = None, **more: Any) -> Any:
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    tag = {"structures": tags, "triggers": [tags[0]["begin"][:3]], "at_least_one": True, **more}
    form = wanted("structural_tag", tag)
    if reasoning is not None:
        form = msgspec.structs.replace(form, reasoning=reasoning)
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(form)

    def allows(text: str) -> bool:
        matcher.reset()
        tokens = tokenizer.tokenize_str(text)
        return bool(matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting())

    return allows


@pytest.mark.parametrize("form", STYLED, ids=lambda form: form.name)
def test_arguments_in_a_familys_form_follow_the_schema(form: Any, toy_model: Any) -> None:
    allows = checker(toy_model, structure(form, SCHEMA), stop_after_first=True)
    for arguments in GOOD:
        assert allows(form.written("f", arguments)), arguments
    for arguments in WRONG:
        assert not allows(form.written("f", arguments)), arguments
    assert not allows(form.written("g", GOOD[0]))
    assert not allows(f"{form.written('f', GOOD[0])} and so on")


@pytest.mark.parametrize("form", STYLED, ids=lambda form: form.name)
def test_arguments_of_a_tool_without_a_schema_are_any(form: Any, toy_model: Any) -> None:
    allows = checker(toy_model, structure(form, {"type": "object"}), stop_after_first=True)
    for arguments in ({}, *GOOD, *WRONG, {"a": {"b": [None, True, {"c": "x"}]}}):
        assert allows(form.written("f", arguments)), arguments


@pytest.mark.parametrize("form", STYLED, ids=lambda form: form.name)
def test_several_calls_come_in_a_familys_form(form: Any, toy_model: Any) -> None:
    allows = checker(toy_model, structure(form, SCHEMA), separator=form.separator)
    call = form.written("f", GOOD[0])
    assert allows(f"{call}{form.separator}{call}")
    assert not allows(f"{call}{form.separator}{form.written('f', WRONG[1])}")


UNENFORCED = (
    ({"properties": {"a": {"type": "string", "pattern": "^x$"}}}, "pattern", ("qwen_xml", "gemma")),
    ({"properties": {"a": {"type": "string", "format": "date"}}}, "format", ("qwen_xml", "gemma")),
    ({"properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, "anyOf", ("qwen_xml", "gemma", "python")),
    ({"properties": {"a": {"type": "array", "prefixItems": [{}]}}}, "prefixItems", ("gemma",)),
)


@pytest.mark.parametrize(("schema", "keyword", "styles"), UNENFORCED)
def test_what_a_form_does_not_enforce_is_refused_by_name(
    schema: Any, keyword: str, styles: tuple[str, ...], toy_model: Any
) -> None:
    for form in STYLED:
        tag = structure(form, {"type": "object", **schema})
        if form.style.partition(":")[0] in styles:
            with pytest.raises(RequestError, match=f"{keyword} is not enforced in the form"):
                checker(toy_model, tag)
        else:
            assert checker(toy_model, tag)


def test_an_unknown_style_is_refused_with_those_that_there_are(toy_model: Any) -> None:
    tag = {"begin": "<f>", "schema": {"type": "object"}, "end": "", "style": "yaml"}
    with pytest.raises(RequestError, match="a style is one of json, python, qwen_xml, gemma:QUOTE; got 'yaml'"):
        checker(toy_model, tag)


def test_thoughts_on_several_channels_come_before_an_answer_or_a_call(toy_model: Any) -> None:
    form = FORMATS["harmony"]
    analysis, preamble, end = HARMONY.begin, HARMONY.others[0], HARMONY.end
    call = f'{form.begin("f")}{{"days": 7}}'
    tag = {"begin": form.begin("f"), "schema": SCHEMA, "end": ""}
    allows = checker(toy_model, tag, reasoning=HARMONY, stop_after_first=True, triggers=[form.trigger])
    for text in (call, f"{analysis}hm{end}{call}", f"{analysis}hm{end}{preamble}Wait.{end}{analysis}x{end}{call}"):
        assert allows(text), text
    for text in (f"{analysis}hm{call}", f"{analysis}hm{end}Hi", f"{analysis}hm{end}{form.begin('g')}{{}}"):
        assert not allows(text), text
    answer = {"kind": "choice", "text": '["yes", "no"]'}
    allows = checker(toy_model, tag, reasoning=HARMONY, answer=answer, at_least_one=False, triggers=[form.trigger])
    assert allows(f"{analysis}hm{end}{HARMONY.answer}yes")
    assert allows(f"{HARMONY.answer}no")
    assert allows(f"{analysis}hm{end}{call}")
    assert not allows(f"{analysis}hm{end}{HARMONY.answer}perhaps")
