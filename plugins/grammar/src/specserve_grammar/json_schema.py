"""A JSON schema as the grammar library takes it: within limits, and without formats that only annotate.

The library refuses every keyword that it does not enforce, so that what is taken is enforced. An unknown `format` is
the exception: the standard (JSON Schema 2020-12, Validation, 7) makes it an annotation.
"""

from __future__ import annotations

import json
from typing import Any

from specserve_grammar.errors import refuse

FORMATS = frozenset(
    {"date", "date-time", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "unknown"}
)
"""That the library enforces."""
VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas."""


def parse_schema(text: str, param: str, max_depth: int) -> dict[str, Any]:
    """Raises RequestError for text that is no schema."""
    try:
        schema = json.loads(text)
    except ValueError as error:
        refuse(param, f"the schema is not valid JSON: {error}")
    except RecursionError:
        refuse(param, f"the schema nests too deeply; {max_depth} levels are allowed")
    if not isinstance(schema, (dict, bool)):
        refuse(param, f"a schema is a JSON object or a boolean; got {type(schema).__name__}")
    if depth_of(schema, max_depth) > max_depth:
        refuse(param, f"the schema nests too deeply; {max_depth} levels are allowed (--set grammar.max_depth=N)")
    if isinstance(schema, bool):  # all values, or none
        return {} if schema else {"enum": []}
    return without_unknown_formats(schema)


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


def without_unknown_formats(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: inner(key, value) for key, value in schema.items() if not is_annotation(key, value)}


def is_annotation(key: str, value: object) -> bool:
    return key == "format" and isinstance(value, str) and value not in FORMATS


def inner(key: str, value: object) -> object:
    if key in VALUES:
        return value
    if isinstance(value, dict):
        return without_unknown_formats(value)
    if isinstance(value, list):
        return [inner("", each) for each in value]
    return value
