"""Objects that are not written as JSON: the arguments of calls in some families' forms, as rules in Lark.

`python`: `key=value, ...` with JSON values. `qwen_xml`: `<parameter=key>`, the value and `</parameter>` on lines of
their own, where a string is its bare text. `gemma:QUOTE`: `key:value,...` with QUOTE around texts. Parameters come in
the order of the schema. What these rules do not enforce is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specserve_grammar.errors import refuse
from specserve_grammar.marks import mark_of, text_up_to

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llguidance import LLTokenizer

STYLES = ("json", "python", "qwen_xml", "gemma:QUOTE")
KEY = "/[A-Za-z_][A-Za-z0-9_-]{0,63}/"
SILENT = frozenset(
    {"title", "description", "default", "examples", "$schema", "$id", "$comment", "$defs", "definitions"}
)
OBJECT = SILENT | {"type", "properties", "required", "additionalProperties"}
"""Keywords of an object that are enforced, or forbid nothing that the rules allow."""
STRING = SILENT | {"type", "minLength", "maxLength"}
LIST = SILENT | {"type", "items", "minItems", "maxItems"}
MAX_REFS = 8
END_OF_PARAMETER = "\n</parameter>\n"


@dataclass(frozen=True, slots=True)
class Style:
    """`name`: of the rule, with which names of its parts begin. `settings`: of JSON."""

    kind: str
    name: str
    settings: Mapping[str, Any]
    tokenizer: LLTokenizer
    param: str

    @property
    def quote(self) -> str:
        return self.kind.partition(":")[2]

    def json(self, schema: Mapping[str, Any]) -> str:
        return f"%json {json.dumps({**schema, 'x-guidance': self.settings})}"

    def mark(self, text: str) -> str:
        return mark_of(text, self.tokenizer)

    def check(self, schema: Mapping[str, Any], allowed: Iterable[str]) -> None:
        """Raises RequestError for a keyword that these rules do not enforce."""
        wrong = next((key for key in schema if key not in allowed), None)
        if wrong is not None:
            text = f"{wrong} is not enforced in the form in which this model writes calls"
            refuse(self.param, f"{text}; leave it out, or check the arguments yourself")


def argument_rules(style: Style, schema: dict[str, Any]) -> list[str]:
    """Raises RequestError."""
    kind = style.kind.partition(":")[0]
    if kind == "python":
        return members(style, style.name, schema, schema, ", ")
    if kind == "qwen_xml":
        raw = text_up_to(f"{style.name}_raw", style.mark(END_OF_PARAMETER))
        return [raw, *members(style, style.name, schema, schema, "")]
    if kind == "gemma" and style.quote:
        return [*any_gemma(style), *members(style, style.name, schema, schema, ",")]
    refuse(style.param, f"a style is one of {', '.join(STYLES)}; got {style.kind[:40]!r}")


def members(style: Style, name: str, schema: Mapping[str, Any], whole: Mapping[str, Any], separator: str) -> list[str]:
    """The rule `name`: the members of an object, with the separator between two."""
    style.check(schema, OBJECT)
    given = schema.get("properties")
    properties: dict[str, Any] = given if isinstance(given, dict) else {}
    required = [each for each in schema.get("required", []) if isinstance(each, str)]
    everything = {**properties, **{key: {} for key in required if key not in properties}}
    between = f"{json.dumps(separator)} " if separator else ""
    if not everything:
        if "properties" in schema and schema.get("additionalProperties") is False:
            return [f'{name}: ""']
        pair, lines = member(style, f"{name}_any", None, {}, whole)
        return [*lines, f"{name}: ({pair} ({between}{pair})*)?"]
    lines, pairs = [], []
    for i, (key, part) in enumerate(everything.items()):
        pair, more = member(style, f"{name}_{i}", key, part, whole)
        pairs.append((pair, key in required))
        lines += more
    return [*lines, *ordered(name, pairs, between)]


def ordered(name: str, pairs: Sequence[tuple[str, bool]], between: str) -> list[str]:
    """Pairs in their order, of which some are required: `NAME_first_i` before the first that is written, `NAME_next_i`
    behind it."""
    lines = [f"{name}: {name}_first_0"]
    for i, (pair, is_required) in enumerate(pairs):
        first, following = f"{pair} {name}_next_{i + 1}", f"{between}{pair} {name}_next_{i + 1}"
        if not is_required:
            first, following = f"{first} | {name}_first_{i + 1}", f"{following} | {name}_next_{i + 1}"
        lines += [f"{name}_first_{i}: {first}", f"{name}_next_{i}: {following}"]
    return [*lines, *(f'{name}_{where}_{len(pairs)}: ""' for where in ("first", "next"))]


def member(style: Style, name: str, key: str | None, schema: Any, whole: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The rule of a key and its value. `key`: None for any."""
    part = resolved(style, schema, whole)
    written = KEY if key is None else json.dumps(key, ensure_ascii=False)
    if style.kind == "python":
        return name, [f'{name}: {written} "=" {style.json(with_definitions(part, whole))}']
    if style.kind == "qwen_xml":
        value, lines = xml_value(style, f"{name}_value", part, whole)
        return name, [*lines, f'{name}: "<parameter=" {written} ">\\n" {value}']
    value, lines = gemma_value(style, f"{name}_value", part, whole)
    return name, [*lines, f'{name}: {written} ":" {value}']


def xml_value(style: Style, name: str, schema: dict[str, Any], whole: Mapping[str, Any]) -> tuple[str, list[str]]:
    """A value and the tag behind it."""
    end = style.mark(END_OF_PARAMETER)
    choices = strings_of(schema)
    if choices is not None:
        return f"({alternatives(choices)}) {end}", []
    types = schema.get("type")
    if types == "string":
        bounded = bounded_text(style, schema)
        return (f"{bounded} {end}" if bounded else f"{style.name}_raw"), []
    if types in ("integer", "number", "boolean", "null", "array", "object"):
        return f"{style.json(with_definitions(schema, whole))} {end}", []
    return f"{style.name}_raw", []  # of several types, or of any: its text is one of them


def gemma_value(style: Style, name: str, schema: dict[str, Any], whole: Mapping[str, Any]) -> tuple[str, list[str]]:
    quote, types = style.mark(style.quote), schema.get("type")
    choices = strings_of(schema)
    if choices is not None:
        return f"{quote} ({alternatives(choices)}) {quote}", []
    if types == "string":
        bounded = bounded_text(style, schema)
        return (f"{quote} {bounded} {quote}" if bounded else f"{style.name}_text"), []
    if types in ("integer", "number", "boolean", "null"):
        return style.json(schema), []
    if types == "array":
        style.check(schema, LIST)
        inner, lines = gemma_value(style, f"{name}_item", resolved(style, schema.get("items", {}), whole), whole)
        least, most = schema.get("minItems", 0), schema.get("maxItems")
        if most == 0:
            return '"[]"', []
        more = f'("," {inner}){{{max(0, least - 1)},{"" if most is None else most - 1}}}'
        items = f"({inner} {more})" if least else f"({inner} {more})?"
        return name, [*lines, f'{name}: "[" {items} "]"']
    if types == "object":
        return name, [*members(style, f"{name}_in", schema, whole, ","), f'{name}: "{{" {name}_in "}}"']
    if "enum" in schema or "const" in schema:
        style.check(schema, SILENT)
    style.check(schema, SILENT | {"anyOf", "type"})
    parts = schema.get("anyOf")
    if isinstance(types, list):
        parts = [{"type": each} for each in types]
    if not isinstance(parts, list):
        return f"{style.name}_value", []
    found = [gemma_value(style, f"{name}_{i}", resolved(style, part, whole), whole) for i, part in enumerate(parts)]
    return f"({' | '.join(value for value, _ in found)})", [line for _, lines in found for line in lines]


def any_gemma(style: Style) -> list[str]:
    name, quote = style.name, style.mark(style.quote)
    return [
        text_up_to(f"{name}_rest", quote),
        f"{name}_text: {quote} {name}_rest",
        f"{name}_scalar: {style.json({'type': ['number', 'boolean', 'null']})}",
        f"{name}_value: {name}_text | {name}_scalar | {name}_list | {name}_object",
        f'{name}_list: "[" ({name}_value ("," {name}_value)*)? "]"',
        f'{name}_object: "{{" ({name}_pair ("," {name}_pair)*)? "}}"',
        f'{name}_pair: {KEY} ":" {name}_value',
    ]


def strings_of(schema: Mapping[str, Any]) -> list[str] | None:
    """Of an enum or a const of texts."""
    given = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(given, list) and given and all(isinstance(each, str) for each in given):
        return given
    return None


def alternatives(texts: Iterable[str]) -> str:
    return " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)


def bounded_text(style: Style, schema: Mapping[str, Any]) -> str:
    """ "" for a text of any length; no character of one with a bound begins a mark."""
    style.check(schema, STRING)
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not least and most is None:
        return ""
    return f"/[^<\\n]{{{least},{'' if most is None else most}}}/"


def resolved(style: Style, schema: Any, whole: Mapping[str, Any]) -> dict[str, Any]:
    """Without references at its top."""
    for _ in range(MAX_REFS):
        reference = schema.get("$ref") if isinstance(schema, dict) else None
        if not isinstance(reference, str):
            break
        schema = dict(whole)
        for step in reference.removeprefix("#/").split("/"):
            schema = schema.get(step) if isinstance(schema, dict) else None
    else:
        style.check({"$ref": ""}, ())
    return schema if isinstance(schema, dict) else {}


def with_definitions(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: whole[key] for key in ("$defs", "definitions") if key in whole}, **schema}
