"""The draft head of SmolLM2: accepted on questions that it was not trained on, lossless alone and beside n-grams."""

from __future__ import annotations

import runpy
from functools import cache
from pathlib import Path

import pytest

from specserve.models.locate import locate_model
from specserve_eagle.card import read_card
from specserve_workbench.testing.engines import make_engine, run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request

DEMO = Path(__file__).parents[2] / "demo"
GGUF = DEMO.parent / "build" / "SmolLM2-135M-Instruct.Q4_1.gguf"
HEAD, STEPS = "smollm2-eagle3", 3
CHAIN, TREE = {"steps": STEPS}, {"steps": STEPS, "topk": 3, "draft_tokens": 8, "weights": "int8"}
LEAST = {0.0: 1.55, 0.8: 1.45}
"""Tokens of a verify step by temperature, the bonus token included, with three draft tokens."""
OF_TREES = 1.8
"""The same of trees, greedily."""
ALONE, BESIDE_NGRAM = ("cpu", "eagle"), ("cpu", "eagle", "ngram")
OPTIONS = {"dtype": "auto", "kv_memory": "512M", "max_model_len": 2048}


@pytest.fixture(scope="module")
def questions(smollm2):
    """As the model reads them; every fourth of those that are held out."""
    tokenizer = make_engine(smollm2, plugins=("cpu",), **OPTIONS).tokenizer
    lines = runpy.run_path(str(DEMO / "chat_topics.py"))["HELD_OUT"].strip().splitlines()
    ask = runpy.run_path(str(DEMO / "demo_requests.py"))["asked"]
    return tuple(tuple(tokenizer.encode(ask(line))) for line in lines[::4])


def requests(questions, temperature):
    return [
        toy_request(str(i), prompt, max_tokens=80, temperature=temperature, seed=i, ignore_eos=False)
        for i, prompt in enumerate(questions)
    ]


@cache
def plain(model, questions, temperature, plugins):
    return run_requests(
        make_engine(model, plugins=plugins, **OPTIONS).engine, requests(questions, temperature)
    ).tokens()


@cache
def drafted(model, questions, temperature, plugins, *, tree=False):
    """The tokens, and how many a verify step gave."""
    tables = {"eagle": {"model": HEAD, **(TREE if tree else CHAIN)}}
    engine = make_engine(model, plugins=plugins, plugin_options=tables, **OPTIONS).engine
    verify_everything(engine)
    result = run_requests(engine, requests(questions, temperature))
    assert not result.metrics.drafter_faults
    return result.tokens(), 1 + result.metrics.num_accepted_tokens / result.metrics.num_drafts


@pytest.mark.parametrize("plugins", [ALONE, BESIDE_NGRAM], ids=["alone", "beside ngram"])
@pytest.mark.parametrize("temperature", list(LEAST))
def test_the_tokens_are_those_of_plain_decoding(smollm2, questions, temperature, plugins):
    assert drafted(smollm2, questions, temperature, plugins)[0] == plain(smollm2, questions, temperature, ("cpu",))


@pytest.mark.parametrize("temperature", list(LEAST))
def test_drafts_for_questions_that_it_was_not_trained_on_are_accepted(smollm2, questions, temperature):
    assert drafted(smollm2, questions, temperature, ALONE)[1] >= LEAST[temperature]


def test_trees_are_lossless_and_accepted_more(smollm2, questions):
    tokens, length = drafted(smollm2, questions, 0.0, ALONE, tree=True)
    assert tokens == plain(smollm2, questions, 0.0, ("cpu",))
    assert length >= OF_TREES


def test_it_drafts_for_the_file_of_four_bits_too(questions):
    tokens, length = drafted(GGUF, questions, 0.0, (*ALONE, "gguf"))
    assert tokens == plain(GGUF, questions, 0.0, ("cpu", "gguf"))
    assert length >= LEAST[0.0]


def test_its_card_says_what_is_accepted(smollm2, questions):
    """Of whole texts, whose system prompt is always the same: more than of answers alone."""
    first, second, third = read_card(locate_model(HEAD)).rates
    promised = 1 + first * (1 + second * (1 + third))
    assert 0.7 * promised < drafted(smollm2, questions, 0.0, ALONE)[1] < promised
