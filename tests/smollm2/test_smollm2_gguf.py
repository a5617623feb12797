"""The GGUF file itself: where inputs are not rounded, its text is that of transformers on the unpacked weights; where
they are, the loss is hardly larger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from benchmarks.cases.weights import loss
from real_prompts import LONG, PROMPTS

from one_pass import greedy_along
from specserve.models.locate import locate_model
from specserve.text.tokenizer import HfTokenizer
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import toy_request

FILE = Path(__file__).parents[2] / "build" / "SmolLM2-135M-Instruct.Q4_1.gguf"
NUM_TOKENS = 24
SHORT = 96
"""Tokens of each prompt that every run of the tests reads; all of them take minutes."""
FLOAT = {"plugins": ("gguf", "cpu"), "plugin_options": {"cpu": {"activations": "float"}}}


@pytest.fixture(scope="module")
def reference():
    """The file as transformers reads it, in float32."""
    from transformers import AutoModelForCausalLM

    os.environ["TQDM_DISABLE"] = "1"
    return AutoModelForCausalLM.from_pretrained(FILE.parent, gguf_file=FILE.name, dtype=torch.float32).eval()


def check_greedy(reference, length, names, **options):
    tokenizer = HfTokenizer.from_dir(locate_model(str(FILE)))
    prompts = {prompt.name: tokenizer.encode(prompt.text)[:length] for prompt in PROMPTS if prompt.name in names}
    assert len(prompts) == len(names)
    requests = [toy_request(name, ids, max_tokens=NUM_TOKENS, ignore_eos=True) for name, ids in prompts.items()]
    got = run(str(FILE), requests, dtype="float32", kv_memory="1G", **options).tokens()
    for name, ids in prompts.items():
        assert got[name] == greedy_along(reference, ids, got[name]), name


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("length", [SHORT, pytest.param(None, marks=pytest.mark.sweep)], ids=["short", "whole"])
def test_twenty_prompts_have_the_greedy_tokens_of_transformers(reference, length):
    names = {prompt.name for prompt in PROMPTS}
    assert len(names) == 20
    check_greedy(reference, length, names, **FLOAT)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_with_torchs_kernels_on_the_unpacked_weights_too(reference):
    check_greedy(reference, SHORT, {"a question", "a function", "JSON"}, plugins=("gguf",))


def test_rounding_inputs_to_8_bits_costs_at_most_half_a_per_cent_of_the_loss():
    """On the beginnings of a text in English and of a program, 512 tokens each."""
    texts = (Path(__file__).parents[2] / "LICENSE").read_text(), LONG
    losses = []
    for activations in ("auto", "float"):
        options = FLOAT | {"plugin_options": {"cpu": {"activations": activations}}}
        made = make_engine(str(FILE), dtype="float32", kv_memory="256M", **options)
        losses.append(loss(made, [tuple(made.tokenizer.encode(text)[:512]) for text in texts]))
    rounded, as_they_are = losses
    assert rounded != as_they_are
    assert rounded <= 1.005 * as_they_are
