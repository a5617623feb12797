"""The bit rule and losslessness on models of every shape: MHA, MQA, and sizes that are no multiple of anything."""

from __future__ import annotations

import random

import pytest
import torch

from covering import covering
from specserve.kv.cache import KVCache
from specserve.models.read_config import read_config
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests
from specserve_workbench.testing.toy import FAMILIES, write_checkpoint

ARITHMETICS = ["torch-float32", "torch-bfloat16", "torch-float16", "cpu-float32", "cpu-bfloat16"]


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("family") / request.param, **FAMILIES[request.param])


def options_of(arithmetic):
    kernels, dtype = arithmetic.split("-")
    return {"default_plugins": kernels == "cpu", "dtype": dtype, "max_num_batched_tokens": 512}


def few_requests():
    """Greedy and sampled ones in turn, all with log-probabilities."""
    rng = random.Random(5)
    return [
        toy_request(
            str(i),
            [rng.randrange(TOY_VOCAB - 10) for _ in range(length)],
            max_tokens=16,
            ignore_eos=True,
            logprobs=3,
            temperature=float(i % 2),
            seed=i,
        )
        for i, length in enumerate((3, 30, 70, 1, 18, 90))
    ]


@covering(family=FAMILIES, arithmetic=ARITHMETICS, indirect=["family"])
def test_chunks_neighbours_and_drafts_change_no_token_and_no_logprob(family, arithmetic):
    requests, options = few_requests(), options_of(arithmetic)
    alone = run(family, requests, **options | {"max_num_seqs": 1})
    in_chunks = run(family, requests, **options | {"max_num_batched_tokens": 17})
    assert in_chunks.decided() == alone.decided()
    drafter = NoisyDrafter(alone.tokens(), p=0.7, max_width=16, vocab_size=TOY_VOCAB, seed=0)
    speculative = run(family, requests, drafter, **options)
    assert speculative.decided() == alone.decided()
    good, drafted = accepted(speculative)
    assert 0.15 < good / drafted < 0.9


@covering(family=FAMILIES, arithmetic=["torch-bfloat16", "cpu-float32"], indirect=["family"])
def test_preemption_and_prefix_hits_change_no_token_and_no_logprob(family, arithmetic):
    requests, options = few_requests(), options_of(arithmetic)
    alone = run(family, requests, **options | {"max_num_seqs": 1, "prefix_cache": False}).decided()
    tight = run(family, requests, **options | {"kv_memory": room_for(family, 8, options["dtype"])})
    assert tight.metrics.num_preemptions > 0
    assert tight.decided() == alone
    engine = make_engine(family, **options).engine
    run_requests(engine, requests)
    again = run_requests(engine, requests)
    assert sum(output.steps[0].cached_tokens for output in again.outputs.values()) > 100
    assert again.decided() == alone


def room_for(model, num_blocks, dtype):
    """As --kv-memory."""
    config = read_config(model)
    sizes = config.num_layers, 16, config.num_kv_heads, config.head_dim
    return str(num_blocks * KVCache.bytes_per_block(*sizes, getattr(torch, dtype)))


@pytest.mark.sweep
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
def test_many_requests_of_every_kind_are_lossless_whatever_the_family(family, arithmetic, threads):
    requests = varied_requests(16, seed=1)
    options = options_of(arithmetic) | {"threads": threads}
    alone = run(family, requests, **options | {"max_num_seqs": 1})
    for limits in ({"max_num_batched_tokens": 24}, {"block_size": 1}, {"max_num_seqs": 32}):
        drafter = NoisyDrafter(alone.tokens(), p=0.7, max_width=16, vocab_size=TOY_VOCAB, seed=1)
        assert run(family, requests, drafter, **options | limits).decided() == alone.decided(), limits
