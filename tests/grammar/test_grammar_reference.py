"""Constrained decoding by transformers and a loop of its own: the same tokens, and as many accepted draft tokens."""

from __future__ import annotations

import json

import pytest
import torch
from grammar_cases import PERSON, grammar_engine, structured, wanted
from llguidance import LLMatcher, LLTokenizer
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from specserve_workbench.testing.engines import run_requests

PROMPT = "# the author of this file, in JSON\nauthor = "
FIXED = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
CHOICES = ["integer", "interval", "string"]
REGEX = "(read|write)_[a-z]{3,9}[.]json"
FORMS = {
    "json_schema": (wanted("json_schema", PERSON), LLMatcher.grammar_from_json_schema(PERSON, overrides=FIXED)),
    "regex": (wanted("regex", REGEX), LLMatcher.grammar_from_regex(REGEX)),
    "choice": (wanted("choice", CHOICES), LLMatcher.grammar_from_lark('start: "integer" | "interval" | "string"')),
}
LEAST_ACCEPTED = {"json_schema": 20, "regex": 3, "choice": 0}


@pytest.fixture(scope="module")
def reference(demo_model):
    return AutoModelForCausalLM.from_pretrained(demo_model, dtype=torch.float32)


@pytest.fixture(scope="module")
def tokenizer(demo_model):
    return Tokenizer.from_file(str(demo_model / "tokenizer.json"))


def constrained(model, tokenizer, demo_model, grammar, prompt):
    """Greedy decoding; each mask comes from a new matcher that reads all tokens: (tokens, drafted, accepted)."""
    library = LLTokenizer(str(demo_model / "tokenizer.json"), n_vocab=model.config.vocab_size)
    (end,) = library.eos_tokens
    tokens, drafts = [], []
    with torch.inference_mode():
        while not tokens or tokens[-1] != end:
            matcher = LLMatcher(library, grammar)
            assert matcher.consume_tokens(tokens)
            text = b"" if matcher.is_stopped() else matcher.compute_ff_bytes()
            drafts.append(tokenizer.encode(text.decode()).ids)
            allowed = [i for i in range(library.vocab_size) if matcher.compute_bitmask()[i // 8] >> i % 8 & 1]
            logits = model(torch.tensor([prompt + tokens])).logits[0, -1]
            tokens.append(allowed[int(logits[allowed].argmax())])
    return tokens, drafts


def count(tokens, drafts, most):
    """Draft tokens that are verified, and those that are accepted, if every step has its draft."""
    drafted = accepted = 0
    at = 1  # the first token comes with the prompt
    while at < len(tokens):
        draft = drafts[at][: min(32, most - at - 1)]
        right = next((i for i, (a, b) in enumerate(zip(draft, tokens[at:], strict=False)) if a != b), len(draft))
        drafted, accepted = drafted + len(draft), accepted + right
        at += right + 1
    return drafted, accepted


@pytest.mark.parametrize("name", FORMS)
def test_tokens_and_accepted_drafts_are_those_of_the_loop(name, reference, tokenizer, demo_model):
    form, grammar = FORMS[name]
    prompt = tokenizer.encode(PROMPT).ids
    tokens, drafts = constrained(reference, tokenizer, demo_model, grammar, prompt)
    outcome = run_requests(grammar_engine(demo_model, dtype="float32"), [structured("a", prompt, form, max_tokens=120)])
    assert outcome.tokens()["a"] == tokens
    assert outcome.outputs["a"].finish_reason == "stop"
    metrics = outcome.metrics
    assert (metrics.num_draft_tokens, metrics.num_accepted_tokens) == count(tokens, drafts, 120)
    assert metrics.num_accepted_tokens > LEAST_ACCEPTED[name]


def test_fixed_keys_take_few_steps(tokenizer, demo_model):
    """At most 0.6 of the steps of plain constrained decoding."""
    prompts = [tokenizer.encode(PROMPT * (i + 1)).ids for i in range(4)]
    requests = [structured(str(i), prompt, wanted("json_schema", PERSON)) for i, prompt in enumerate(prompts)]
    drafted = run_requests(grammar_engine(demo_model), requests)
    plain = run_requests(grammar_engine(demo_model, grammar={"forced_drafts": "false"}), requests)
    assert drafted.decided() == plain.decided()
    assert drafted.metrics.num_steps <= 0.6 * plain.metrics.num_steps


def test_ngram_drafts_behind_forced_text_within_one_step(tokenizer, demo_model):
    """The prompt has the same values on lines of their own: keys are forced, and n-grams know the values behind."""
    prompt = tokenizer.encode(PROMPT).ids
    form = wanted("json_schema", PERSON)
    (first,) = run_requests(grammar_engine(demo_model), [structured("a", prompt, form)]).tokens().values()
    in_lines = json.dumps(json.loads(tokenizer.decode(first[:-1])), indent=1)
    request = structured("b", [*tokenizer.encode(in_lines).ids, *prompt], form)
    plain = run_requests(grammar_engine(demo_model, grammar={"forced_drafts": "false"}), [request])
    steps = {}
    for goes_on in (False, True):
        engine = grammar_engine(demo_model, beside=("ngram",))
        for guard in engine.drafting.guards:
            guard.continues_forced = guard.continues_forced and goes_on
        drafted = run_requests(engine, [request])
        assert drafted.decided() == plain.decided()
        steps[goes_on] = [tuple(dict.fromkeys(delta.drafted_by)) for delta in drafted.outputs["b"].steps]
    assert ("grammar", "ngram", "") in steps[True]
    assert len(steps[True]) < len(steps[False])
