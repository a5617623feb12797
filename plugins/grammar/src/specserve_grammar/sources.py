"""From a request's structured output to the text of a grammar for the library.

Knows every kind.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from llguidance import LLMatcher, grammar_from

from specserve.api import StructuredOutput
from specserve_grammar.composing import behind_reasoning, composed
from specserve_grammar.errors import refuse
from specserve_grammar.json_schema import parse_schema
from specserve_grammar.structural_tags import read_tag, tag_rules

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from specserve_grammar.options import GrammarOptions

KINDS = frozenset({"json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"})
FIXED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
FLEXIBLE = {"whitespace_flexible": True, "item_separator": ",", "key_separator": ":"}


def grammar_text(wanted: StructuredOutput, options: GrammarOptions, tokenizer: LLTokenizer) -> str:
    """Raises RequestError for one that is too large or no grammar of its kind. Compiling checks the rest."""
    size = len(wanted.text.encode(errors="replace"))
    if size > options.max_bytes:
        allowed = f"{options.max_bytes} are allowed (--set grammar.max_bytes=N)"
        refuse(wanted.param, f"the {wanted.kind} has {size} bytes; {allowed}")
    body = body_grammar(wanted, options_for(wanted, options), tokenizer)
    return body if wanted.reasoning is None else behind_reasoning(body, wanted.reasoning, tokenizer)


def options_for(wanted: StructuredOutput, options: GrammarOptions) -> GrammarOptions:
    """What a request says about JSON goes before the server's options."""
    if wanted.whitespace:
        options = msgspec.structs.replace(options, whitespace=wanted.whitespace)
    if wanted.closed_objects is not None:
        options = msgspec.structs.replace(options, closed_objects=wanted.closed_objects)
    return options


def body_grammar(wanted: StructuredOutput, options: GrammarOptions, tokenizer: LLTokenizer) -> str:
    if wanted.kind == "json_object":
        return json_grammar({"type": "object"}, options)
    if wanted.kind == "json_schema":
        return json_grammar(parse_schema(wanted.text, wanted.param, options), options)
    if wanted.kind == "regex":
        return LLMatcher.grammar_from_regex(wanted.text)
    if wanted.kind == "choice":
        return choice_grammar(wanted, options)
    if wanted.kind == "structural_tag":
        return tag_grammar(wanted, options, tokenizer)
    try:
        return grammar_from("grammar", wanted.text)
    except ValueError as error:
        refuse(wanted.param, str(error))


def tag_grammar(wanted: StructuredOutput, options: GrammarOptions, tokenizer: LLTokenizer) -> str:
    tag = read_tag(wanted)
    rules = tag_rules(tag, wanted, options, json_settings(options), tokenizer)
    if tag.answer is None:
        return composed(rules)
    answer = StructuredOutput(kind=tag.answer.kind, text=tag.answer.text, param=wanted.param)
    return composed(rules, answer=body_grammar(answer, options, tokenizer))


def json_settings(options: GrammarOptions) -> dict[str, Any]:
    whitespace = FIXED if options.whitespace == "fixed" else FLEXIBLE
    return {**whitespace, "lenient": options.unsupported != "refuse", "coerce_one_of": False}


def json_grammar(schema: dict[str, Any], options: GrammarOptions) -> str:
    return LLMatcher.grammar_from_json_schema(json.dumps(schema), overrides=json_settings(options))  # type: ignore[arg-type]


def choice_grammar(wanted: StructuredOutput, options: GrammarOptions) -> str:
    try:
        choices = json.loads(wanted.text)
    except ValueError as error:
        refuse(wanted.param, f"the choices are not valid JSON: {error}")
    if not isinstance(choices, list) or not choices or not all(isinstance(each, str) and each for each in choices):
        refuse(wanted.param, "a choice is a list of at least one text, none of them empty")
    if len(choices) > options.max_choices:
        refuse(wanted.param, f"it has {len(choices)} choices; {options.max_choices} are allowed")
    return LLMatcher.grammar_from_lark("start: " + " | ".join(map(quoted, choices)))


def quoted(text: str) -> str:
    """As a literal of a Lark grammar, whose escapes are those of JSON."""
    return json.dumps(text, ensure_ascii=False)
