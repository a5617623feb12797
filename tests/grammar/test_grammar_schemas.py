"""300 random schemas: what a random model generates parses and validates, says an independent validator."""

from __future__ import annotations

import json
import random

import pytest
from grammar_cases import grammar_engine, structured, wanted
from jsonschema import Draft202012Validator, FormatChecker

from specserve.text.tokenizer import HfTokenizer
from specserve_grammar.json_schema import parse_schema
from specserve_grammar.options import GrammarOptions
from specserve_workbench.testing.engines import run_requests

COUNT = 300
CHECKER = FormatChecker(["date", "ipv4", "uuid"])


class SchemaMaker:
    """Schemas of all kinds that the plugin enforces, whose texts come to an end."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self, depth=0):
        leaves = [self.integer, self.text, self.pattern, self.format, self.enum, self.const, self.either, self.null]
        inner = [self.object, self.object, self.array, self.tuple, self.any_of, self.all_of, self.map]
        return self.random.choice(leaves if depth > 2 else [*inner, *inner, *leaves])(depth)

    def integer(self, depth):
        least = self.random.randint(-500, 500)
        schema = {"type": "integer", "minimum": least, "maximum": least + self.random.randint(0, 5000)}
        if self.random.random() < 0.3:
            factor = self.random.randint(2, 9)
            schema |= {"minimum": -factor, "maximum": 99 * factor, "multipleOf": factor}
        return schema

    def text(self, depth):
        least = self.random.randint(0, 3)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randint(0, 8)}

    def pattern(self, depth):
        patterns = ["^[a-z]{2,5}$", "^(yes|no)[0-9]?$", "^[A-Z][a-z]{1,4}-[0-9]{3}$", "^x?y{1,3}z$"]
        return {"type": "string", "pattern": self.random.choice(patterns)}

    def format(self, depth):
        name = self.random.choice(["date", "ipv4", "uuid", "unheard-of"])
        return {"type": "string", "format": name} | ({"maxLength": 9} if name == "unheard-of" else {})

    def enum(self, depth):
        values = ["alpha", "beta", 'with "quotes"', "ünï", "", 7, -3, True, None, [1, 2], {"a": "b"}]
        return {"enum": self.random.sample(values, self.random.randint(1, 5))}

    def const(self, depth):
        return {"const": self.random.choice(["fixed", 42, False, {"k": [None, "v"]}])}

    def either(self, depth):
        return {"type": ["boolean", "null"]}

    def null(self, depth):
        return {"type": self.random.choice(["null", "boolean"])}

    def object(self, depth):
        names = self.random.sample(["id", "name", "first name", "größe", "items", "x-y", "a.b", "$ref_"], 4)
        names = names[: self.random.randint(0, 4)]
        schema = {"type": "object", "properties": {name: self.schema(depth + 1) for name in names}}
        schema["required"] = [name for name in names if self.random.random() < 0.6]
        schema["additionalProperties"] = False
        return schema

    def array(self, depth):
        least = self.random.randint(0, 2)
        most = least + self.random.randint(0, 2)
        return {"type": "array", "items": self.schema(depth + 1), "minItems": least, "maxItems": most}

    def tuple(self, depth):
        items = [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "items": False}

    def any_of(self, depth):
        return {"anyOf": [self.schema(depth + 1) for _ in range(self.random.randint(1, 3))]}

    def all_of(self, depth):
        most = self.random.randint(0, 50)
        return {"allOf": [{"type": "integer", "minimum": 0}, {"maximum": most}], "title": "bounded"}

    def map(self, depth):
        inner = self.schema(depth + 1)
        return {
            "type": "object",
            "patternProperties": {"^k[0-9]$": inner},
            "additionalProperties": False,
            "maxProperties": 2,
        }

    def document(self):
        schema = self.schema()
        if self.random.random() < 0.3:
            schema = {"$ref": "#/$defs/Node", "$defs": {"Node": schema}}
        return schema | {"$schema": "https://json-schema.org/draft/2020-12/schema"}


@pytest.fixture(scope="module")
def schemas():
    maker = SchemaMaker(21)
    return [maker.document() for _ in range(COUNT)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("whitespace", ["fixed", "flexible"])
def test_every_text_validates(schemas, toy_model, temperature, whitespace):
    requests = [
        structured(
            str(i), (i % 200, 7, i % 13), wanted("json_schema", schema), temperature=temperature, seed=i, max_tokens=700
        )
        for i, schema in enumerate(schemas)
    ]
    options = {"beside": ("ngram",), "default_plugins": True, "max_num_seqs": 32, "kv_memory": "128M"}
    outcome = run_requests(grammar_engine(toy_model, grammar={"whitespace": whitespace}, **options), requests)
    tokenizer = HfTokenizer.from_dir(toy_model)
    endless = []
    for schema, output in zip(schemas, outcome.outputs.values(), strict=True):
        text = tokenizer.decode(output.tokens)
        if output.finish_reason == "length":
            endless.append(schema)
            continue
        assert output.finish_reason == "stop"
        Draft202012Validator(schema, format_checker=CHECKER).validate(json.loads(text))
    # a model may put blanks between two tokens without end, where it may put any
    assert len(endless) <= (0 if whitespace == "fixed" else COUNT // 4)
    assert not outcome.metrics.faults.counts
    assert not outcome.metrics.drafter_faults


def closed(schema, **options):
    return parse_schema(json.dumps(schema), "p", GrammarOptions(**options))


def test_objects_that_name_their_properties_are_closed():
    named = {"type": "object", "properties": {"format": {"type": "string"}, "b": {"properties": {}}}}
    assert closed({"$defs": {"A": named}, "items": named}) == {
        "$defs": {"A": CLOSED},
        "items": CLOSED,
    }
    assert closed(named, closed_objects=False) == named


CLOSED = {
    "type": "object",
    "properties": {"format": {"type": "string"}, "b": {"properties": {}, "additionalProperties": False}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"properties": {}, "additionalProperties": {"type": "integer"}},
        {"properties": {}, "patternProperties": {"^a": {}}},
        {"properties": {}, "anyOf": [{"required": ["a"]}]},
        {"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
        {"enum": [{"properties": {}}], "default": {"format": "x"}},
        True,
    ],
    ids=str,
)
def test_other_schemas_stay_as_they_are(schema):
    assert closed(schema) == ({} if schema is True else schema)


def test_formats_that_nobody_knows_are_left_out():
    assert closed({"type": "string", "format": "frob"}) == {"type": "string"}
    assert closed({"type": "string", "format": "date"}) == {"type": "string", "format": "date"}
