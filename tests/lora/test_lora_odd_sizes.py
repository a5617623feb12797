"""Adapters on models whose sizes are odd: what fills them up for the native kernels reaches no number.

Log-probabilities of a given prompt are compared, so that no token can lead two kernel sets apart.
"""

from __future__ import annotations

import pytest

from covering import covering
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from toy_adapters import lora_engine, under, write_adapter

SIZES = {"odd hidden": (65, 64), "odd inner": (64, 63), "both odd": (77, 31), "even": (64, 48)}
RANKS = {"a": 1, "b": 7, "c": 32}
NEAR = {"float32": 2e-5, "bfloat16": 0.1}
PROMPT = tuple(range(3, 43))
each_size = covering(("sizes", "dtype"), ("attention", "dtype"), sizes=SIZES, attention=["auto", "sdpa"], dtype=NEAR)


@pytest.fixture
def model(tmp_path, sizes, dtype):
    hidden, inner = SIZES[sizes]
    return write_checkpoint(tmp_path / "model", hidden_size=hidden, intermediate_size=inner, dtype=dtype)


@pytest.fixture
def adapters(tmp_path, model):
    return {name: write_adapter(tmp_path / name, model, rank=rank, seed=rank, size=0.6) for name, rank in RANKS.items()}


def prompt_logprobs(model, adapters, **options):
    """By adapter name, of one batch."""
    engine, store = lora_engine(model, adapters, **options)
    names = ["", *adapters]
    requests = [toy_request(name, PROMPT, max_tokens=1, prompt_logprobs=0) for name in names]
    run = run_requests(engine, under(store, requests, names))
    return {name: [each.logprob for each in run.outputs[name].prompt_logprobs] for name in names}


def distance(left, right):
    return max(abs(a - b) for a, b in zip(left, right, strict=True))


@each_size
def test_native_adapters_compute_what_torchs_do(model, adapters, dtype, attention):
    native = prompt_logprobs(model, adapters, beside=("cpu",), attention=attention)
    torchs = prompt_logprobs(model, adapters)
    for name in native:
        assert len(native[name]) == len(PROMPT) - 1
        assert distance(native[name], torchs[name]) < NEAR[dtype], name
        assert not name or distance(native[name], native[""]) > 2 * NEAR[dtype], "the adapter changes what is computed"


@each_size
def test_noisy_drafts_change_nothing_under_them(model, adapters, attention):
    requests = varied_requests(12, seed=3)
    names = [("", *adapters)[i % 4] for i in range(12)]
    plain, store = lora_engine(model, adapters, beside=("cpu",), attention=attention)
    expected = run_requests(plain, under(store, requests, names))
    drafter = NoisyDrafter(expected.tokens(), p=0.7, max_width=16, vocab_size=TOY_VOCAB)
    engine, store = lora_engine(model, adapters, drafter, beside=("cpu",), attention=attention)
    guessed = run_requests(engine, under(store, requests, names))
    assert guessed.decided() == expected.decided()
    assert guessed.metrics.num_accepted_tokens > 20
