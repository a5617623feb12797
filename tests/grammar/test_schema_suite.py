"""Every schema of the JSON-Schema-Test-Suite (draft 2020-12) is enforced exactly or refused by name.

`SPECSERVE_WRITE=1` writes the table of docs/grammar.md.
"""

from __future__ import annotations

import json
import os
import random
import re

import pytest
from grammar_cases import wanted
from jsonschema import Draft202012Validator
from schema_suite import CASES, PAGE, run_suite, table, with_table

from specserve.errors import RequestError
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy_tokenizer import EOS_ID

MAX_TOKENS = 80
WORDS_OF_THE_LIBRARY = re.compile(r"Unimplemented|json-schema:///|coerce|registry|regexes|Expected positive|backtrace")


@pytest.fixture(scope="module")
def grammars(toy_model):
    """As the standard has it: objects are open, and white space is free."""
    options = GrammarOptions(closed_objects=False, whitespace="flexible", cache_size=1000)
    return Grammars(load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,)), options)


@pytest.fixture(scope="module")
def counted(grammars):
    return run_suite(grammars)


def test_no_invalid_value_is_allowed(counted):
    assert [wrong for found in counted.values() for wrong in found.wrong] == []


def test_valid_values_are_allowed_but_for_other_spellings_of_numbers_and_formats(counted):
    """A text has integers without a fraction, and formats are enforced, which the standard leaves open."""
    for name, found in counted.items():
        for narrow in found.narrow:
            assert name == "format" or re.search(r"\d\.0\b|1e\+308", narrow), narrow


def test_what_is_refused_is_named_in_words_of_the_schema(counted):
    for found in counted.values():
        for refusal in found.refused:
            assert not WORDS_OF_THE_LIBRARY.search(refusal), refusal
            assert re.search(r"at /|no value satisfies|\$dynamicAnchor|\$ref needs", refusal), refusal


def test_the_page_has_the_table(counted):
    page = PAGE.read_text()
    expected = with_table(page, table(counted))
    if os.environ.get("SPECSERVE_WRITE"):
        PAGE.write_text(expected)
    assert page == expected, "SPECSERVE_WRITE=1 pytest tests/grammar/test_schema_suite.py"


def validate(schema, text):
    """Python's regular expressions have other classes than ECMAScript's, and a double's fractions are no decimals."""
    value = json.loads(text)
    if not re.search(r'\\\\[wWdDsSpPc]|"multipleOf": \d+\.\d', json.dumps(schema)):
        Draft202012Validator(schema).validate(value)


def random_text(grammars, schema, rng):
    """The text of random allowed tokens, and whether it is complete. No mask may be empty before the text is."""
    matcher = grammars.matcher(wanted("json_schema", json.dumps(schema)))
    tokens: list[int] = []
    while len(tokens) < MAX_TOKENS:
        mask = matcher.compute_bitmask()
        allowed = [i for i in range(TOY_VOCAB) if mask[i // 8] >> i % 8 & 1]
        assert allowed, f"nothing may follow {grammars.tokenizer.decode_str(tokens)!r} of {json.dumps(schema)}"
        if EOS_ID in allowed and (len(allowed) == 1 or rng.random() < 0.3):
            return grammars.tokenizer.decode_str(tokens), True
        token = rng.choice([each for each in allowed if each != EOS_ID])
        assert matcher.consume_token(token)
        tokens.append(token)
    return grammars.tokenizer.decode_str(tokens), False


@pytest.mark.parametrize("walks", [2, pytest.param(40, marks=pytest.mark.sweep)])
@pytest.mark.parametrize("closed", [False, True])
def test_random_texts_are_valid_and_none_ends_where_nothing_may_follow(toy_model, closed, walks):
    options = GrammarOptions(closed_objects=closed, cache_size=1000)
    grammars = Grammars(load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,)), options)
    rng, complete = random.Random(walks), 0
    for groups in CASES.values():
        for _, schema, _ in groups:
            try:
                grammars.find(wanted("json_schema", json.dumps(schema)))
            except RequestError:
                continue
            for _ in range(walks):
                text, is_complete = random_text(grammars, schema, rng)
                if is_complete:
                    validate(schema, text)
                complete += is_complete
    assert complete > 100 * walks
