"""The promises on a real model: the tokens of transformers, and the same tokens with drafts, chunks and neighbours."""

from __future__ import annotations

import msgspec
import pytest
import torch
from real_prompts import PROMPTS

from one_pass import greedy_along
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.testing.composers import everything
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request

NUM_TOKENS = 48
SOME = ("a correction", "an edit", "Chinese and Japanese")
"""Prompts of every run of the tests; the others take minutes in transformers."""


def greedy(prompts, names):
    return [toy_request(name, prompts[name], max_tokens=NUM_TOKENS, ignore_eos=True) for name in names]


def mixed(prompts, names):
    """Each prompt greedy and sampled, with log-probabilities."""
    sampled = ({"temperature": 0.0}, {"temperature": 0.8, "seed": 5}, {"temperature": 1.0, "seed": 9, "top_p": 0.9})
    return [
        toy_request(f"{name} {i}", prompts[name], max_tokens=NUM_TOKENS, logprobs=2, **params)
        for name in names
        for i, params in enumerate(sampled)
    ]


@pytest.fixture(scope="module")
def reference(smollm2):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    "names", [SOME, pytest.param([prompt.name for prompt in PROMPTS], marks=pytest.mark.sweep)], ids=["some", "all"]
)
def test_greedy_tokens_are_those_of_transformers(smollm2, prompts, reference, names):
    options = {"dtype": "float32", "kv_memory": "1G", "max_num_batched_tokens": 700}
    got = run(smollm2, greedy(prompts, names), plugins=("cpu",), **options).tokens()
    assert {len(tokens) for tokens in got.values()} == {NUM_TOKENS}
    for name in names:
        assert got[name] == greedy_along(reference, prompts[name], got[name])


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float32", marks=pytest.mark.sweep)])
def test_drafts_chunks_and_neighbours_change_nothing(smollm2, prompts, dtype):
    """One at a time and in whole prompts; all at once, in chunks and with n-gram drafts, twice: the second time the
    index knows the texts."""
    requests, options = mixed(prompts, SOME), {"dtype": dtype, "kv_memory": "512M"}
    alone = run(smollm2, requests, max_num_seqs=1, plugins=("cpu",), **options).decided()
    tables = {"ngram": {"min_survival": 0.01}}
    engine = make_engine(
        smollm2,
        planner=everything(8),
        max_num_batched_tokens=100,
        plugins=("cpu", "ngram"),
        plugin_options=tables,
        **options,
    ).engine
    assert run_requests(engine, requests).decided() == alone
    before = engine.metrics.num_accepted_tokens
    again = [msgspec.structs.replace(request, request_id=f"{request.request_id} again") for request in requests]
    decided = run_requests(engine, again).decided()
    assert {name.removesuffix(" again"): found for name, found in decided.items()} == alone
    assert engine.metrics.num_accepted_tokens - before > 100


def test_it_stops_at_the_end_of_its_turn(smollm2, prompts):
    """Its files say which token ends a turn."""
    request = toy_request("a question", prompts["a question"], max_tokens=40)
    done = run(smollm2, [request], plugins=("cpu",), kv_memory="512M").outputs["a question"]
    assert done.finish_reason == "stop"
    assert "Paris" in HfTokenizer.from_dir(smollm2).decode(done.tokens)
