"""A value that is written as text without its type: which JSON value it is, by the schema of the parameter."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_checks.json_types import JsonObject, JsonValue

NAMES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
WORDS = {"True": "true", "False": "false", "None": "null"}
MAX_REFS = 8


def parameter_types(tool: Mapping[str, JsonValue], name: str) -> frozenset[str]:
    """Types that the schema of a tool's arguments allows for the parameter; empty where it names none. A parameter
    beside those that the schema has is a string."""
    properties = tool.get("properties")
    if not isinstance(properties, dict) or not properties:
        return frozenset()
    if name not in properties:
        return frozenset({"string"})
    return frozenset(types_of(properties[name], tool, MAX_REFS))


def types_of(schema: JsonValue, whole: Mapping[str, JsonValue], depth: int) -> Iterator[str]:
    if not isinstance(schema, dict) or not depth:
        return
    given = schema.get("type")
    if given is not None:
        yield from [each for each in (given if isinstance(given, list) else [given]) if isinstance(each, str)]
        return
    values = schema.get("enum")
    for value in values if isinstance(values, list) else []:
        yield NAMES.get(type(value), "null")
    if "const" in schema:
        yield NAMES.get(type(schema["const"]), "null")
    for keyword in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(keyword)
        for part in parts if isinstance(parts, list) else []:
            yield from types_of(part, whole, depth - 1)
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from types_of(referred(reference, whole), whole, depth - 1)


def referred(reference: str, whole: Mapping[str, JsonValue]) -> JsonValue:
    """Within the schema; None for what is not there."""
    found: JsonObject | JsonValue = dict(whole)
    for step in reference.removeprefix("#/").split("/") if reference.startswith("#/") else [""]:
        found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def typed_json(text: str, types: frozenset[str]) -> str:
    """The value as JSON: a string where the text is no value of the types."""
    trimmed = text.strip()
    written = WORDS.get(trimmed, trimmed)
    try:
        value = json.loads(written, parse_constant=refuse)
    except (ValueError, RecursionError):
        return json.dumps(text, ensure_ascii=False)
    name = NAMES.get(type(value), "null")
    fits = not types or name in types or (name == "integer" and "number" in types)
    fits = fits or (name == "number" and "integer" in types and float(value).is_integer())
    return written if fits and name != "string" else json.dumps(text, ensure_ascii=False)


def refuse(word: str) -> None:
    """NaN and infinities, which Python reads and JSON does not have."""
    raise ValueError(word)
