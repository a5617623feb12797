"""Structural tags: free text in which a trigger begins a part that follows a schema.

The form is vLLM's and SGLang's: {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from llguidance import LLMatcher

from specserve_grammar.errors import refuse
from specserve_grammar.json_schema import parse_schema

if TYPE_CHECKING:
    from specserve.types import StructuredOutput
    from specserve_grammar.options import GrammarOptions

MAX_TAGS = 256


def tag_grammar(wanted: StructuredOutput, options: GrammarOptions, settings: dict[str, Any]) -> str:
    """Raises RequestError."""
    try:
        body = json.loads(wanted.text)
    except (ValueError, RecursionError) as error:
        refuse(wanted.param, f"the structural tag is not valid JSON: {error}")
    structures, triggers = read_tags(body, wanted.param)
    lines = ["start: (" + " | ".join(f"tag_{i}" for i in range(len(structures))) + ")* TEXT", "TEXT: /(.|\\n)*/"]
    for i, structure in enumerate(structures):
        begin, end = structure["begin"], structure.get("end", "")
        trigger = next((each for each in triggers if begin.startswith(each)), None)
        if trigger is None:
            refuse(wanted.param, f"begin {begin[:80]!r} starts with none of the triggers {triggers}")
        schema = parse_schema(json.dumps(structure.get("schema", {})), wanted.param, options.max_depth)
        parts = [
            f"trigger_{i}",
            *literal(begin[len(trigger) :]),
            f"%json {with_settings(schema, settings)}",
            *literal(end),
        ]
        lines += [f"trigger_{i}[lazy]: TEXT {json.dumps(trigger)}", f"tag_{i}: " + " ".join(parts)]
    return LLMatcher.grammar_from_lark("%llguidance {}\n" + "\n".join(lines))


def read_tags(body: object, param: str) -> tuple[list[dict[str, Any]], list[str]]:
    form = 'a structural tag is {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}'
    if not isinstance(body, dict):
        refuse(param, f"{form}; got {type(body).__name__}")
    structures, triggers = body.get("structures"), body.get("triggers")
    if not isinstance(structures, list) or not isinstance(triggers, list) or not structures or not triggers:
        refuse(param, f"{form}; got the fields {sorted(body)}")
    if len(structures) > MAX_TAGS:
        refuse(param, f"it has {len(structures)} structures; {MAX_TAGS} are allowed")
    if not all(isinstance(each, str) and each for each in triggers):
        refuse(param, f"{form}; a trigger is a text that is not empty")
    for each in structures:
        if not isinstance(each, dict) or not isinstance(each.get("begin"), str):
            refuse(param, f"{form}; every structure has a begin")
        if not isinstance(each.get("end", ""), str) or not isinstance(each.get("schema", {}), (dict, bool)):
            refuse(param, f"{form}; end is a text and schema a JSON schema")
    return structures, triggers


def literal(text: str) -> list[str]:
    return [json.dumps(text, ensure_ascii=False)] if text else []


def with_settings(schema: dict[str, Any], settings: dict[str, Any]) -> str:
    """The library reads a schema's own settings from x-guidance, which a client must not choose."""
    return json.dumps({**schema, "x-guidance": settings})
