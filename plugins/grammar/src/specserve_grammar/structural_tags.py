"""Structural tags: free text in which a trigger begins a part that follows a schema.

The form is vLLM's and SGLang's: {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}. More fields, with
XGrammar's names: `at_least_one` (the text begins with a tag, and nothing else comes), `stop_after_first`, `separator`.
And two of ours: with `answer` the text is tags, and nothing else, or an answer of another kind; `style` of a structure
says how its value is written where that is not JSON.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from specserve.api.files import find_wrong_value
from specserve_grammar.errors import refuse
from specserve_grammar.json_schema import parse_schema
from specserve_grammar.marks import MARKS, free_text, mark_of, text_up_to
from specserve_grammar.styles import Style, argument_rules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llguidance import LLTokenizer

    from specserve.api import StructuredOutput
    from specserve_grammar.options import GrammarOptions

MAX_TAGS = 256
CALL = re.compile(
    r'\{"name": "(?P<json>[^"]*)"|\[TOOL_CALLS\](?P<mark>[^\[\]{]+)\[ARGS\]'
    r"|(?:<function=|call:|to=functions\.|<function_calls>|```tool_code\n)(?P<other>[\w.-]+)"
)
"""How calls begin in the forms of `specserve_server.tools`; the name is the tool's."""
ANSWER = "the answer"


class Structure(msgspec.Struct, frozen=True):
    begin: str
    schema: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    end: str = ""
    style: str = "json"


class Answer(msgspec.Struct, frozen=True):
    """As in `specserve.api.StructuredOutput`."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    text: str = ""


class Tag(msgspec.Struct, frozen=True):
    structures: list[Structure]
    triggers: list[str]
    at_least_one: bool = False
    stop_after_first: bool = False
    separator: str = ""
    answer: Answer | None = None


def tag_rules(
    tag: Tag, wanted: StructuredOutput, options: GrammarOptions, settings: dict[str, Any], tokenizer: LLTokenizer
) -> str:
    """In Lark; an answer is `@answer` there. Raises RequestError."""
    numbers = range(len(tag.structures))
    lines: list[str] = []
    marks: list[str] = []
    for i, structure in zip(numbers, tag.structures, strict=True):
        trigger = next((each for each in tag.triggers if structure.begin.startswith(each)), None)
        if trigger is None:
            refuse(wanted.param, f"begin {structure.begin[:80]!r} starts with none of the triggers {tag.triggers}")
        mark = mark_of(trigger, tokenizer)
        schema = parse_schema(bytes(structure.schema).decode() or "{}", wanted.param, options)
        value = f"%json {with_settings(schema, settings)}"
        if structure.style != "json":
            style = Style(structure.style, f"value_{i}", settings, tokenizer, wanted.param)
            value = style.name
            lines += argument_rules(style, schema)
        rest = [*with_marks(structure.begin[len(trigger) :], tokenizer), value]
        body = " ".join([*rest, *with_marks(structure.end, tokenizer)])
        lines.append(f"tag_{i}: {mark} {body}")
        marks.append(mark)
        lines += [text_up_to(f"trigger_{i}", mark), f"found_{i}: trigger_{i} {body}"]
    tags, found = (" | ".join(f"{name}_{i}" for i in numbers) for name in ("tag", "found"))
    lines += [free_text(marks), *start_of(tag, tags, found)]
    return "\n".join(lines)


def start_of(tag: Tag, tags: str, found: str) -> list[str]:
    """The rule that everything begins with."""
    if tag.answer is None and not tag.at_least_one:
        return [f"start: ({found}) | TEXT" if tag.stop_after_first else f"start: ({found})* TEXT"]
    start = "start: calls" if tag.answer is None else "start: calls | @answer"
    if tag.stop_after_first:
        return [start, f"calls: {tags}"]
    return [start, f"calls: ({tags}) more*", f"more: {' '.join(literal(tag.separator))} ({tags})"]


def read_tag(wanted: StructuredOutput) -> Tag:
    form = 'a structural tag is {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]}'
    try:
        tag = msgspec.json.decode(wanted.text, type=Tag)
    except msgspec.ValidationError as error:
        refuse(wanted.param, f"{form}; {find_wrong_value(error, json.loads(wanted.text), Tag)}")
    except msgspec.DecodeError as error:
        refuse(wanted.param, f"{form}; it is not valid JSON: {error}")
    except RecursionError:
        refuse(wanted.param, f"{form}; it nests too deeply")
    if not tag.structures or not tag.triggers or not all(tag.triggers):
        refuse(wanted.param, f"{form}; neither list is empty, and no trigger is")
    if len(tag.structures) > MAX_TAGS:
        refuse(wanted.param, f"it has {len(tag.structures)} structures; {MAX_TAGS} are allowed")
    return tag


def schemas_of(tag: Tag) -> Iterator[tuple[str, str]]:
    """What a message calls each part, and its schema."""
    for structure in tag.structures:
        yield part_name(structure), bytes(structure.schema).decode() or "{}"
    if tag.answer is not None and tag.answer.kind == "json_schema":
        yield ANSWER, tag.answer.text


def part_name(structure: Structure) -> str:
    """The tool's where it begins a call."""
    found = CALL.search(structure.begin)
    if found:
        name = next(filter(None, found.groups()), "")
        return f'tool "{name}"'
    return f"the part that begins with {structure.begin[:80]!r}"


def with_marks(text: str, tokenizer: LLTokenizer) -> list[str]:
    """A text in which marks such as `[ARGS]` may be special tokens of the model."""
    return [mark_of(part, tokenizer) for part in MARKS.split(text) if part]


def literal(text: str) -> list[str]:
    return [json.dumps(text, ensure_ascii=False)] if text else []


def with_settings(schema: dict[str, Any], settings: dict[str, Any]) -> str:
    """The library reads a schema's own settings from x-guidance, which a client must not choose."""
    return json.dumps({**schema, "x-guidance": settings})
