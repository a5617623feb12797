"""Whether an answer satisfies what of its schemas was not enforced.

Finds the JSON values in the text and the schema of each; `validator` validates them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from specserve.api import AnswerCheck
from specserve_grammar.errors import ValidationError
from specserve_grammar.marks import MARKS
from specserve_grammar.structural_tags import ANSWER, part_name, read_tag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from specserve.api import SamplingParams, StructuredOutput
    from specserve_grammar.grammars import Grammars
    from specserve_grammar.structural_tags import Structure
    from specserve_grammar.validator import Validator

DECODER = json.JSONDecoder(parse_int=str, parse_float=str)
"""It finds where a value ends; texts for numbers, since Python reads no integer of more than 4300 digits."""
CUT_OFF = "the text ends before the value does"
STYLED = "this model does not write the arguments of calls as JSON"
HIDDEN = "it begins with special tokens, which do not show in the text; send skip_special_tokens: false"


class Part(NamedTuple):
    """A value in the answer."""

    name: str
    """"" for the only one."""
    schema: str
    begin: int | None
    """Where it begins in the text; None where that does not show."""
    hidden: str = HIDDEN
    """Why it does not."""


def answer_check(grammars: Grammars, params: SamplingParams, text: str) -> AnswerCheck | None:
    """`text`: of the answer, without reasoning. None where all was enforced, or nothing is to be validated."""
    wanted, validator = params.structured_output, grammars.validator
    if wanted is None or validator is None:
        return None
    unenforced = grammars.find(wanted).unenforced
    if not unenforced:
        return None
    errors: list[str] = []
    unknown: list[str] = []
    for part in parts_of(wanted, text, params.skip_special_tokens, grammars):
        if part.name not in unenforced:
            continue
        try:
            errors += [of_part(part.name, error) for error in errors_of(part, text, validator)]
        except ValidationError as error:
            unknown.append(of_part(part.name, f"could not be validated: {error}"))
    valid = False if errors else None if unknown else True
    places = tuple(of_part(name, place) for name, found in unenforced.items() for place in found)
    return AnswerCheck(valid=valid, unenforced=places, errors=(*errors, *unknown))


def of_part(name: str, text: str) -> str:
    return f"{name}: {text}" if name else text


def errors_of(part: Part, text: str, validator: Validator) -> list[str]:
    """Raises ValidationError."""
    if part.begin is None:
        raise ValidationError(part.hidden)
    try:
        _, end = DECODER.raw_decode(text, part.begin)
    except ValueError:
        return [CUT_OFF]
    except RecursionError:
        raise ValidationError("it nests too deeply") from None
    return validator.errors(part.schema, text[part.begin : end])


def parts_of(wanted: StructuredOutput, text: str, skips: bool, grammars: Grammars) -> Iterator[Part]:
    """`skips`: special tokens do not show in the text."""
    if wanted.kind == "json_schema":
        yield Part("", wanted.text, begin_of_value(text, 0))
        return
    tag = read_tag(wanted)
    begins = [
        (shown(structure.begin, grammars) if skips else structure.begin, structure) for structure in tag.structures
    ]
    found = list(tagged_parts(text, [each for each in begins if each[0] and each[1].style == "json"]))
    styled = [(begin, structure) for begin, structure in begins if begin in text and structure.style != "json"]
    found += [Part(part_name(structure), "", None, STYLED) for _, structure in styled]
    found += [
        Part(part_name(structure), "", None) for begin, structure in begins if not begin and structure.style == "json"
    ]
    if not found and tag.answer is not None and tag.answer.kind == "json_schema":
        found = [Part(ANSWER, tag.answer.text, begin_of_value(text, 0))]
    yield from found


def tagged_parts(text: str, begins: list[tuple[str, Structure]]) -> Iterator[Part]:
    """In their order; what follows the beginning of a part is its value."""
    at = 0
    while True:
        places = [
            (place, -len(begin), i) for i, (begin, _) in enumerate(begins) if (place := text.find(begin, at)) >= 0
        ]
        if not places:
            return
        place, length, i = min(places)
        structure = begins[i][1]
        begin = begin_of_value(text, place - length)
        yield Part(part_name(structure), bytes(structure.schema).decode() or "{}", begin)
        try:
            at = DECODER.raw_decode(text, begin)[1]
        except (ValueError, RecursionError):
            return


def begin_of_value(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def shown(text: str, grammars: Grammars) -> str:
    """Without special tokens."""
    return "".join(part for part in MARKS.split(text) if not grammars.is_special(part))
