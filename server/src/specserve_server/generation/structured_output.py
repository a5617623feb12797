"""The form that a body asks for: OpenAI's `response_format`, vLLM's `structured_outputs` and older `guided_*` names.

Knows nothing about tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from specserve.errors import RequestError
from specserve.types import StructuredOutput

if TYPE_CHECKING:
    from specserve_server.bodies.requests import SamplingBody
    from specserve_server.bodies.structured import ResponseFormat, StructuredOutputs

Kind: TypeAlias = Literal["json_object", "json_schema", "regex", "choice", "grammar", "structural_tag"]


def structured_output(body: SamplingBody) -> StructuredOutput | None:
    """None where the text is free. Raises RequestError for a body that asks for several forms."""
    wanted = [*of_response_format(body.response_format), *of_structured_outputs(body), *of_guided(body)]
    if len(wanted) > 1:
        names = " and ".join(each.param for each in wanted)
        raise RequestError(f"{wanted[1].param}: the text has one form; got {names}. Send one.", param=wanted[1].param)
    return wanted[0] if wanted else None


def of_response_format(given: ResponseFormat | None) -> list[StructuredOutput]:
    param = "response_format"
    if given is None or given.type in (None, "text"):
        return []
    if given.type == "json_object":
        return [StructuredOutput(kind="json_object", param=param)]
    if given.type == "structural_tag":
        if is_null(given.structures) or is_null(given.triggers):
            raise RequestError("response_format: structural_tag needs structures and triggers.", param=param)
        body = b'{"structures": %b, "triggers": %b}' % (bytes(given.structures), bytes(given.triggers))
        return [StructuredOutput(kind="structural_tag", text=body.decode(), param=param)]
    if given.json_schema is None or is_null(given.json_schema.schema):
        needs = 'type json_schema needs {"json_schema": {"name": ..., "schema": {...}}}'
        raise RequestError(f"response_format: {needs}.", param=param)
    return [StructuredOutput(kind="json_schema", text=text_of(given.json_schema.schema), param=param)]


def of_structured_outputs(body: SamplingBody) -> list[StructuredOutput]:
    given = body.structured_outputs
    if given is None:
        return []
    if given.whitespace_pattern is not None:
        raise RequestError(
            "structured_outputs: whitespace_pattern is not served; leave it out, or send disable_any_whitespace.",
            param="structured_outputs",
        )
    found = forms("structured_outputs", given.json, given.regex, given.choice, given.grammar)
    if given.json_object:
        found.append(StructuredOutput(kind="json_object"))
    if not is_null(given.structural_tag):
        found.append(StructuredOutput(kind="structural_tag", text=text_of(given.structural_tag)))
    if not found:
        allowed = "json, json_object, regex, choice, grammar, structural_tag"
        raise RequestError(f"structured_outputs: give one of {allowed}.", param="structured_outputs")
    return [written_as(given, each) for each in found]


def written_as(given: StructuredOutputs, wanted: StructuredOutput) -> StructuredOutput:
    if given.disable_any_whitespace:
        wanted = msgspec.structs.replace(wanted, whitespace="fixed")
    if given.disable_additional_properties:
        wanted = msgspec.structs.replace(wanted, closed_objects=True)
    return wanted


def of_guided(body: SamplingBody) -> list[StructuredOutput]:
    """Each under its own name."""
    return [
        *forms("guided_json", schema=body.guided_json),
        *forms("guided_regex", regex=body.guided_regex),
        *forms("guided_choice", choice=body.guided_choice),
        *forms("guided_grammar", grammar=body.guided_grammar),
    ]


def forms(
    param: str,
    schema: msgspec.Raw | None = None,
    regex: str | None = None,
    choice: list[str] | None = None,
    grammar: str | None = None,
) -> list[StructuredOutput]:
    texts: dict[Kind, str | None] = {
        "json_schema": None if is_null(schema) else text_of(schema),
        "regex": regex,
        "choice": None if choice is None else msgspec.json.encode(choice).decode(),
        "grammar": grammar,
    }
    return [StructuredOutput(kind=kind, text=text, param=param) for kind, text in texts.items() if text is not None]


def is_null(value: msgspec.Raw | None) -> bool:
    return value is None or bytes(value) in (b"", b"null")


def text_of(value: msgspec.Raw | None) -> str:
    """The JSON text; of a JSON string what is in it, since clients send schemas as texts, too."""
    text = b"" if value is None else bytes(value)
    if text.startswith(b'"'):
        return str(msgspec.json.decode(text, type=str))
    return text.decode()
