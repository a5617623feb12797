"""The JSON-Schema-Test-Suite against the grammars of the plugin: what is taken, and which values the text may be."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grammar_cases import wanted

from specserve.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from specserve_grammar.grammars import Grammars

ROOT = Path(__file__).parents[2]
CASES: dict[str, list[list[Any]]] = json.loads((Path(__file__).parent / "json_schema_suite" / "cases.json").read_text())
PAGE = ROOT / "docs" / "grammar.md"
BEGIN, END = "<!-- the suite: tests/grammar/test_schema_suite.py writes it -->\n", "<!-- end of the suite -->\n"
MAX_ORDERS = 60


class Counted(NamedTuple):
    """Of a file of the suite. `wrong`: invalid values that the grammar allows. `narrow`: valid ones that not."""

    num_schemas: int
    refused: list[str]
    num_values: int
    wrong: list[str]
    narrow: list[str]

    @property
    def row(self) -> str:
        taken = self.num_schemas - len(self.refused)
        return f"{self.num_schemas} | {taken} | {len(self.refused)} | {self.num_values} | {len(self.narrow) or ''}"


def run_suite(grammars: Grammars) -> dict[str, Counted]:
    return {name: count(grammars, groups) for name, groups in CASES.items()}


def count(grammars: Grammars, groups: list[list[Any]]) -> Counted:
    found = Counted(len(groups), [], 0, [], [])
    for description, schema, values in groups:
        try:
            grammars.find(wanted("json_schema", json.dumps(schema)))
        except RequestError as error:
            found.refused.append(str(error))
            continue
        found = found._replace(num_values=found.num_values + len(values))
        for value, is_valid in values:
            allowed = any(accepts(grammars, schema, order) for order in itertools.islice(orders(value), MAX_ORDERS))
            if allowed and not is_valid:
                found.wrong.append(f"{description}: {json.dumps(value)} of {json.dumps(schema)}")
            if is_valid and not allowed:
                found.narrow.append(f"{description}: {json.dumps(value)} of {json.dumps(schema)}")
    return found


def accepts(grammars: Grammars, schema: object, value: object) -> bool:
    matcher = grammars.matcher(wanted("json_schema", json.dumps(schema)))
    tokens = grammars.tokenizer.tokenize_str(json.dumps(value, ensure_ascii=False))
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


def orders(value: object) -> Iterator[object]:
    """The same value with its keys in every order: a text has those that a schema names in the schema's."""
    if isinstance(value, dict):
        for names in itertools.permutations(value) if len(value) <= 4 else [tuple(value)]:
            inner = [list(itertools.islice(orders(value[name]), 6)) for name in names]
            for values in itertools.product(*inner):
                yield dict(zip(names, values, strict=True))
    elif isinstance(value, list):
        for values in itertools.product(*[list(itertools.islice(orders(each), 6)) for each in value]):
            yield list(values)
    else:
        yield value


def table(counted: Mapping[str, Counted]) -> str:
    head = "| file | schemas | enforced | refused | values | spelt otherwise |\n|---|---|---|---|---|---|\n"
    return head + "".join(f"| {name} | {found.row} |\n" for name, found in counted.items())


def with_table(page: str, text: str) -> str:
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, f"the page has no {BEGIN.strip()} and {END.strip()}"
    return "".join([before, BEGIN, "\n", text, "\n", END, after])
