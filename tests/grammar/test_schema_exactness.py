"""What a schema says is enforced exactly, or refused by name: large numbers, counts of keys, parts of one object."""

from __future__ import annotations

import json

import pytest
from grammar_cases import wanted

from specserve.errors import RequestError
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy_tokenizer import EOS_ID


@pytest.fixture
def grammars(toy_model):
    return Grammars(load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,)), GrammarOptions())


def accepts(grammars, schema, value):
    matcher = grammars.matcher(wanted("json_schema", schema))
    tokens = grammars.tokenizer.tokenize_str(json.dumps(value, ensure_ascii=False))
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize("keyword", ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"])
@pytest.mark.parametrize(
    "number",
    ["9007199254740993", "-18446744073709551610", "1e300", "1e-99999999999999999999", "0.12345678901234567890"],
)
def test_bounds_that_a_double_rounds_are_refused_by_name(grammars, keyword, number):
    schema = f'{{"type": "object", "properties": {{"a/b": {{"type": "number", "{keyword}": {number}}}}}}}'
    with pytest.raises(RequestError, match=f"{keyword} at /properties/a~1b/{keyword} has a number"):
        grammars.matcher(wanted("json_schema", schema))


@pytest.mark.parametrize("schema", [{"enum": [1, 2**60 + 1]}, {"const": {"a": [-(2**53) - 1]}}], ids=str)
def test_values_that_a_double_rounds_are_refused_by_name(grammars, schema):
    with pytest.raises(RequestError, match=f"{next(iter(schema))} at /{next(iter(schema))} has a number"):
        grammars.matcher(wanted("json_schema", schema))


@pytest.mark.parametrize(
    ("pattern", "matched", "others"),
    [
        (r"^[a[b]]$", ["a]", "[]", "b]"], ["a", "[", "ab]"]),
        (r"^[a&&b]$", ["&"], ["a&"]),
        (r"^[+--]$", ["+", ",", "-"], ["."]),
        (r"^[~~]$", ["~"], [""]),
        (r"^.$", ["a", "\x85"], ["\r", "\n", "\u2028", "\u2029"]),
        (r"^\s$", ["\ufeff", "\u3000", "\n"], ["\x85", "a"]),
        (r"^\S$", ["\x85", "a"], ["\ufeff", "\u2029"]),
        (r"^[^\s,]+$", ["ab"], ["a b", "a\ufeff"]),
        (r"^[\b]$", ["\b"], ["b"]),
        (r"^\cA[\cB]$", ["\x01\x02"], ["cAcB"]),
        (r"^[\]a-]$", ["]", "-"], ["b"]),
    ],
)
def test_patterns_mean_what_they_mean_to_ecmascript(grammars, pattern, matched, others):
    schema = {"type": "string", "pattern": pattern}
    assert [text for text in (*matched, *others) if accepts(grammars, schema, text)] == matched
    named = {"type": "object", "patternProperties": {pattern: {}}, "additionalProperties": False}
    assert all(accepts(grammars, named, {text: 1}) for text in matched)


@pytest.mark.parametrize("keyword", ["if", "then", "else", "minContains", "maxContains"])
def test_keywords_without_those_that_they_belong_to_are_dropped(grammars, keyword):
    value = {"type": "string"} if keyword in ("if", "then", "else") else 2
    assert accepts(grammars, {"type": "array", "maxItems": 2.0, keyword: value}, [1])


REFUSED = (
    ({"properties": {"a": {"not": {}}}}, "not at /properties/a/not is not enforced. Leave it out"),
    ({"if": True, "then": False}, "if at /if and then at /then are not enforced. Leave them out"),
    (
        {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        "oneOf at /oneOf is enforced only where no value can satisfy two",
    ),
    ({"$ref": "https://a.b/c.json"}, "$ref at /$ref needs https://a.b/c.json, and no other document is read"),
    (
        {"patternProperties": {"a": {}, "b": {}}},
        "patternProperties at /patternProperties has two patterns that may match",
    ),
    ({"allOf": [{"type": "string"}, {"type": "null"}]}, "no value satisfies the schema"),
    (
        {"type": "string", "pattern": "(a"},
        "pattern at /pattern: the regular expression (a cannot be read: unclosed group",
    ),
)


@pytest.mark.parametrize(("schema", "said"), REFUSED)
def test_what_is_not_enforced_is_refused_by_its_place(grammars, schema, said):
    with pytest.raises(RequestError) as refusal:
        grammars.matcher(wanted("json_schema", schema))
    assert said in str(refusal.value)


def test_numbers_that_only_annotate_may_be_large(grammars):
    assert accepts(grammars, {"type": "integer", "default": 2**70, "minimum": -(2**53)}, 7)


def test_a_count_that_a_repeated_key_would_satisfy_is_refused(grammars):
    with pytest.raises(RequestError, match="minProperties at /minProperties is 2, and 0 keys are required"):
        grammars.matcher(wanted("json_schema", {"type": "object", "minProperties": 2}))
    assert accepts(grammars, {"type": "object", "minProperties": 1}, {"a": 1})


NUMBER = {"type": "integer"}
A, B = {"properties": {"a": NUMBER}}, {"properties": {"b": NUMBER}, "required": ["b"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", **A, "anyOf": [B]},
        {"type": "object", **A, "oneOf": [B]},
        {"type": "object", **A, "$ref": "#/$defs/B", "$defs": {"B": B}},
        {"type": "object", **A, "required": ["b"]},
        {"type": "object", "required": ["a"], "anyOf": [B]},
    ],
    ids=str,
)
def test_an_object_that_several_schemas_describe_has_the_keys_of_all(grammars, schema):
    assert any(accepts(grammars, schema, value) for value in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    assert not accepts(grammars, schema, {"a": 1})


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("propertyNames", {"type": "string"}),
        ("propertyNames", {"type": "string", "title": "key"}),
        ("propertyNames", True),
        ("unevaluatedProperties", True),
        ("dependentRequired", {}),
        ("dependentSchemas", {}),
        ("uniqueItems", False),
        ("unevaluatedItems", {}),
    ],
)
def test_keywords_that_forbid_nothing_are_dropped(grammars, keyword, value):
    assert accepts(grammars, {"type": "object", "additionalProperties": NUMBER, keyword: value}, {"x": 1})


@pytest.mark.parametrize("keyword", [{"propertyNames": {"pattern": "^a"}}, {"uniqueItems": True}], ids=str)
def test_keywords_that_forbid_something_are_refused_by_name(grammars, keyword):
    with pytest.raises(RequestError, match=next(iter(keyword))):
        grammars.matcher(wanted("json_schema", {"type": ["object", "array"], **keyword}))


@pytest.mark.parametrize("schema", [{"uniqueItems": True}, {"maximum": 2**60}, {"type": "x"}], ids=str)
def test_a_refused_schema_of_a_tool_names_the_tool_and_shows_no_grammar(grammars, schema):
    begin = '<tool_call>{"name": "count", "arguments": '
    tag = {"triggers": ["<"], "structures": [{"begin": begin, "schema": schema, "end": "}"}]}
    with pytest.raises(RequestError, match='structured_outputs: tool "count": ') as refusal:
        grammars.matcher(wanted("structural_tag", tag))
    assert not {"%json", "tag_0", "x-guidance", "TEXT"}.intersection(str(refusal.value).replace(":", " ").split())
