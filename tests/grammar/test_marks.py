"""Where parts of a text begin and end: special tokens, texts, single bytes; and the form behind reasoning."""

from __future__ import annotations

import msgspec
import pytest
from grammar_cases import wanted

from specserve.types import Reasoning
from specserve_grammar.grammars import Grammars, load_tokenizer
from specserve_grammar.options import GrammarOptions
from specserve_workbench.testing.requests import TOY_VOCAB
from specserve_workbench.testing.toy_tokenizer import EOS_ID

COUNT = {
    "type": "object",
    "properties": {"n": {"type": "integer", "maximum": 9, "minimum": 0}},
    "required": ["n"],
    "additionalProperties": False,
}


def test_a_trigger_that_is_a_special_token_is_one(toy_model):
    """Text never spells it."""
    tag = {"triggers": ["<|user|>"], "structures": [{"begin": "<|user|>[", "schema": {"type": "boolean"}, "end": "]"}]}
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(wanted("structural_tag", tag))
    (special,) = tokenizer.tokenize_str("<|user|>", parse_special=True)
    for tokens, is_allowed in (
        ([*tokenizer.tokenize_str("text "), special, *tokenizer.tokenize_str("[true]")], True),
        ([special, *tokenizer.tokenize_str("[7]")], False),
        ([*tokenizer.tokenize_str("<|us"), *tokenizer.tokenize_str("er|>[7]")], True),  # these letters are text
    ):
        matcher.reset()
        assert (matcher.try_consume_tokens(tokens) == len(tokens)) == is_allowed


def test_special_tokens_within_a_tag_are_such_tokens(toy_model):
    """As `[ARGS]` of Mistral's models is."""
    tag = {
        "triggers": ["call "],
        "structures": [{"begin": "call f<|user|>", "schema": {"type": "boolean"}, "end": "."}],
    }
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(wanted("structural_tag", {**tag, "at_least_one": True}))
    begin, rest = tokenizer.tokenize_str("call f"), tokenizer.tokenize_str("true.")
    special = tokenizer.tokenize_str("<|user|>", parse_special=True)
    spelt = [*tokenizer.tokenize_str("<|us"), *tokenizer.tokenize_str("er|>")]
    for tokens, is_allowed in (([*begin, *special, *rest], True), ([*begin, *spelt, *rest], False)):
        matcher.reset()
        assert (matcher.try_consume_tokens(tokens) == len(tokens)) == is_allowed


def test_a_trigger_may_have_special_tokens_and_text(toy_model):
    """As gpt-oss' header of a call has."""
    begin = "<|user|>call f<|user|>"
    tag = {"triggers": ["<|user|>call "], "structures": [{"begin": begin, "schema": {"type": "boolean"}, "end": ""}]}
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(wanted("structural_tag", tag))
    (special,) = tokenizer.tokenize_str("<|user|>", parse_special=True)
    call = tokenizer.tokenize_str("call f")
    for tokens, is_allowed in (
        ([*tokenizer.tokenize_str("text "), special, *call, special, *tokenizer.tokenize_str("true")], True),
        ([special, *call, special, *tokenizer.tokenize_str("7")], False),
        ([special, *tokenizer.tokenize_str("text")], False),
    ):
        matcher.reset()
        assert (matcher.try_consume_tokens(tokens) == len(tokens)) == is_allowed


TAGS = {
    "triggers": ["<", "[CALL]"],
    "structures": [
        {"begin": "<", "schema": {"type": "integer"}, "end": ""},
        {"begin": "[CALL]", "schema": {"type": "boolean"}, "end": "."},
    ],
}
MARKS_OF_ONE_BYTE = (
    ("a choice with the beginning of the reasoning", "choice", ["the first", "none"], ("the", "e"), "thee none", True),
    ("a choice with the end of the reasoning", "choice", ["the first", "none"], ("the", "e"), "the first", True),
    ("an end within a token", "choice", ["the first", "none"], ("the", "e"), "thest none", False),
    ("an end that is punctuation", "choice", ["a", "b"], ("", "/"), "no [^\\x] idea/b", True),
    ("two ends", "choice", ["a", "b"], ("", "/"), "no/idea/b", False),
    ("a trigger that ends a number", "structural_tag", TAGS, None, "x <7<8 y", True),
    ("a trigger in text", "structural_tag", TAGS, None, "x < y", False),
    ("a trigger behind another", "structural_tag", TAGS, None, "x [CALL]true. [CALL]false.<12", True),
    ("a trigger in another", "structural_tag", TAGS, None, "x [CALL<7]", True),
    ("a trigger of several bytes in text", "structural_tag", TAGS, None, "x [CALL]y", False),
)


@pytest.mark.parametrize(("what", "kind", "body", "reasoning", "text", "is_allowed"), MARKS_OF_ONE_BYTE)
def test_a_mark_of_one_byte_is_seen_wherever_it_comes(what, kind, body, reasoning, text, is_allowed, toy_model):
    """In tokens of one byte each, and in the tokenizer's own."""
    form = wanted(kind, body)
    if reasoning is not None:
        form = msgspec.structs.replace(form, reasoning=Reasoning(*reasoning))
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(form)
    for tokens in (tokenizer.tokenize_str(text), [token for byte in text for token in tokenizer.tokenize_str(byte)]):
        matcher.reset()
        known = 0
        for token in tokens:
            matcher.compute_ff_bytes()
            known += matcher.try_consume_tokens([token])
        assert (known == len(tokens) and matcher.is_accepting()) == is_allowed, (what, tokens, matcher.get_error())


@pytest.mark.parametrize("begin", ["<think>", ""])
def test_a_form_holds_behind_reasoning(begin, toy_model):
    tokenizer = load_tokenizer(toy_model, TOY_VOCAB, (EOS_ID,))
    form = msgspec.structs.replace(wanted("json_schema", COUNT), reasoning=Reasoning(begin, "</think>"))
    matcher = Grammars(tokenizer, GrammarOptions()).matcher(form)
    thought = f'{begin}\nIs it {{"n": 77}}? </thin'
    for text, is_allowed in (
        (f'{thought}</think>\n\n{{"n": 7}}', True),
        (f'{thought}</think>{{"n": 7}}', True),
        (f'{thought}</think>\n\n{{"n": 77}}', False),
        (f'{thought}</think>\n\nWell: {{"n": 7}}', False),
        ('{"n": 7}', bool(begin)),
    ):
        matcher.reset()
        tokens = tokenizer.tokenize_str(text)
        assert (matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()) == is_allowed, text
