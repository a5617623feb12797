"""A JSON schema as the grammar library takes it: within limits, closed, without formats that only annotate.

The library refuses every keyword that it does not enforce, so that what is taken is enforced. An unknown `format` is
the exception: the standard (JSON Schema 2020-12, Validation, 7) makes it an annotation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from specserve_grammar.errors import refuse
from specserve_grammar.patterns import translated
from specserve_grammar.schema_checks import ANNOTATIONS, check_schema, read_float

if TYPE_CHECKING:
    from collections.abc import Callable

    from specserve_grammar.options import GrammarOptions

FORMATS = frozenset(
    {"date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"}
)
"""That the library enforces."""
VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values have schemas by name."""
COUNTS = frozenset({"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"})
PARTS = frozenset({"properties", "additionalProperties", "patternProperties", "anyOf", "oneOf", "$ref", "$dynamicRef"})
"""Two of these beside each other describe one object together, as the schemas of an allOf do."""
CONDITIONS = frozenset({"allOf", "if", "dependentSchemas"})
"""One of these beside anything does, too."""
OPEN = frozenset({"additionalProperties", "patternProperties", "unevaluatedProperties", "$ref", "anyOf", "oneOf"})
PARTNERS = {
    "if": frozenset({"then", "else"}),
    **dict.fromkeys(("then", "else"), frozenset({"if"})),
    **dict.fromkeys(("minContains", "maxContains"), frozenset({"contains"})),
}
BRANCHES = frozenset({"anyOf", "oneOf", "$ref", "$dynamicRef"})


def parse_schema(text: str, param: str, options: GrammarOptions) -> dict[str, Any]:
    """Raises RequestError for text that is no schema."""
    most = options.max_depth
    try:
        schema = json.loads(text, parse_float=read_float)
    except ValueError as error:
        refuse(param, f"the schema is not valid JSON: {error}")
    except RecursionError:
        refuse(param, f"the schema nests too deeply; {most} levels are allowed")
    if not isinstance(schema, (dict, bool)):
        refuse(param, f"a schema is a JSON object or a boolean; got {type(schema).__name__}")
    if depth_of(schema, most) > most:
        refuse(param, f"the schema nests too deeply; {most} levels are allowed (--set grammar.max_depth=N)")
    if isinstance(schema, bool):  # all values, or none
        return {} if schema else {"enum": []}
    check_schema(schema, param, counts=options.unsupported == "refuse")
    closes = options.closed_objects and not has_parts(schema)
    return map_schemas(schema, closed if closes else dict)


def depth_of(value: object, most: int) -> int:
    """How deep objects and arrays lie within each other; at most `most` + 1 is looked at."""
    depth, level = 0, [value]
    while level and depth <= most:
        inner: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list):
                inner += each
        level = [each for each in inner if isinstance(each, (dict, list))]
        depth += 1
    return depth


def map_schemas(schema: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Any]:
    """Without unknown formats and what forbids nothing, and with every schema in it changed so."""
    kept = {
        key: counted(inner(key, value, change)) if key in COUNTS else inner(key, value, change)
        for key, value in schema.items()
        if not (is_annotation(key, value) or is_vacuous(key, value) or is_alone(key, schema))
    }
    return change(kept)


def is_annotation(key: str, value: object) -> bool:
    return key == "format" and isinstance(value, str) and value not in FORMATS


def is_vacuous(key: str, value: object) -> bool:
    """Does this keyword forbid nothing? Some schemas are written by programs that always write it."""
    if key == "propertyNames" and isinstance(value, dict):
        return {name: each for name, each in value.items() if name not in ANNOTATIONS} in ({}, {"type": "string"})
    if key in ("propertyNames", "unevaluatedProperties", "unevaluatedItems"):
        return value is True or value == {}
    return (key == "uniqueItems" and value is False) or (
        key in ("dependentRequired", "dependentSchemas") and value == {}
    )


def is_alone(key: str, schema: dict[str, Any]) -> bool:
    """Does it say something only beside others, which are not there? (JSON Schema 2020-12, Core, 10.2.2.)"""
    partners = PARTNERS.get(key)
    return partners is not None and partners.isdisjoint(schema)


def inner(key: str, value: object, change: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
    if key in VALUES:
        return value
    if key in MAPS and isinstance(value, dict):  # its keys are names, not keywords
        names = {name: translated(name) if key == "patternProperties" else name for name in value}
        return {names[name]: inner("", each, change) for name, each in value.items()}
    if isinstance(value, dict):
        return map_schemas(value, change)
    if isinstance(value, list):
        return [inner("", each, change) for each in value]
    return translated(value) if key == "pattern" and isinstance(value, str) else value


def counted(value: object) -> object:
    """2.0 is the integer 2 (JSON Schema 2020-12, Core, 4.2.3)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def has_parts(schema: object) -> bool:
    """Is there an object that several schemas describe together? Each must allow what the others name."""
    if isinstance(schema, list):
        return any(map(has_parts, schema))
    if not isinstance(schema, dict):
        return False
    parts = PARTS.intersection(schema)
    if not CONDITIONS.isdisjoint(schema) or (
        len(parts | ({"required"} & schema.keys())) > 1 and not parts.isdisjoint(BRANCHES)
    ):
        return True
    return any(has_parts(value) for key, value in schema.items() if key not in VALUES)


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    """An object that names its properties has no others, unless the schema says something about these."""
    named, required = schema.get("properties"), schema.get("required", [])
    if not isinstance(named, dict) or not isinstance(required, list) or not OPEN.isdisjoint(schema):
        return schema
    if all(name in named for name in required if isinstance(name, str)):
        return {**schema, "additionalProperties": False}
    return schema
