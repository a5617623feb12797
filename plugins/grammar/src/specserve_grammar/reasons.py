"""Why the grammar library refuses a schema, in words of the schema's author: keyword, place as a JSON pointer, advice.

The library says what it could not compile in its own terms and never where. What it says and is not known here is shown
as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from specserve_grammar.errors import LENIENT
from specserve_grammar.schema_checks import keyword_places, unenforced_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

MAX_PLACES = 20
KEYWORDS = re.compile(r'"([^"]+)"')
Rule = tuple[re.Pattern[str], "Callable[[re.Match[str], object], str]"]


def reason_in_words(reason: str, schema: object) -> str:
    """`reason`: the library's. `schema`: as the client sent it; None where the grammar is none."""
    for pattern, words in RULES:
        if match := pattern.search(reason):
            return words(match, schema)
    return reason


def unimplemented(match: re.Match[str], schema: object) -> str:
    names = KEYWORDS.findall(match["names"])
    *first, last = list(shown_places(schema, names)) or names
    if not first:
        return f"{last} is not enforced. Leave it out; {LENIENT}"
    return f"{', '.join(first)} and {last} are not enforced. Leave them out; {LENIENT}"


def overlapping(match: re.Match[str], schema: object) -> str:
    place = next(shown_places(schema, ["oneOf"]), "oneOf")
    text = "is enforced only where no value can satisfy two of its schemas, such as by their types"
    return f"{place} {text}. Use anyOf, if a value that satisfies two of them is fine; {LENIENT}"


def other_document(match: re.Match[str], schema: object) -> str:
    places = list(shown_places(schema, ["$ref", "$dynamicRef"]))
    return f"{places[0] if places else '$ref'} needs {match['uri']}, and no other document is read. Put it into $defs"


def overlapping_names(match: re.Match[str], schema: object) -> str:
    place = next(shown_places(schema, ["patternProperties"]), "patternProperties")
    text = f"has two patterns that may match the same name, {match['one']} and {match['other']}"
    return f"{place} {text}. Make them exclude each other"


def unsatisfiable(match: re.Match[str], schema: object) -> str:
    why = match["why"].replace("json-schema:///", "").rstrip(".")
    return f"no value satisfies the schema ({why}). Correct it, so that there is one"


def wrong_pattern(match: re.Match[str], schema: object) -> str:
    places = list(shown_places(schema, ["pattern", "patternProperties"]))
    where = f"{places[0]}: " if len(places) == 1 else ""
    return f"{where}the regular expression {match['pattern']} cannot be read: {match['why']}"


def too_many_digits(match: re.Match[str], schema: object) -> str:
    place = next(shown_places(schema, [match["name"]]), match["name"])
    return f"{place} has too many digits to be enforced: {match['value']}. Give a number with fewer"


RULES: tuple[Rule, ...] = (
    (re.compile(r"Unimplemented keys: \[(?P<names>.*?)\]"), unimplemented),
    (re.compile(r"oneOf constraints are not supported"), overlapping),
    (re.compile(r"Resource '(?P<uri>[^']*)' is not present"), other_document),
    (re.compile(r"patternProperty regexes (?P<one>/.*/) and (?P<other>/.*/) are not disjoint"), overlapping_names),
    (re.compile(r"Unsatisfiable schema: (?P<why>.*)", re.DOTALL), unsatisfiable),
    (re.compile(r"regex parse error:\s*(?P<pattern>\S+).*?error: (?P<why>.*)", re.DOTALL), wrong_pattern),
    (re.compile(r"Value for '(?P<name>\w+)' has too many digits: (?P<value>\S+)"), too_many_digits),
)


def unenforced(warnings: Iterable[str], schema: object) -> list[str]:
    """What the library does not enforce, by its warnings about a schema that it took: `not at /properties/a/not`."""
    named = {name for warning in warnings for name in unenforced_keywords(warning)}
    found = [f"{keyword} at {pointer}" for pointer, keyword in keyword_places(schema) if keyword in named]
    return [*found, *unenforced_counts(schema)][:MAX_PLACES]


def unenforced_keywords(warning: str) -> list[str]:
    if "oneOf" in warning:
        return ["oneOf"]
    match = RULES[0][0].search(warning)
    return KEYWORDS.findall(match["names"]) if match else []


def shown_places(schema: object, names: Collection[str]) -> Iterator[str]:
    """`not at /properties/a/not`: the first place of each of these keywords."""
    found: dict[str, str] = {}
    for pointer, keyword in keyword_places(schema):
        if keyword in names:
            found.setdefault(keyword, pointer)
    return (f"{name} at {found[name]}" for name in names if name in found)
