"""Drafts, chunks, neighbours, prefixes and preemption change no bit of what models of transformers answer."""

from __future__ import annotations

import pytest
from architectures import KINDS, SERVED, write_model
from runs import options_of

from covering import covering
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests

SETTINGS = [
    {"max_num_batched_tokens": 24},
    {"kv_memory": "230K"},
    {"block_size": 4},
    {"graphs": "full"},
    {"graphs": "piecewise"},
    {"threads": 2},
]


def noisy(tokens):
    return NoisyDrafter(tokens, p=0.8, max_width=6, vocab_size=TOY_VOCAB)


def check(path, arithmetic, **settings):
    kernels, dtype = arithmetic.split("-")
    options, requests = {**options_of(kernels), "dtype": dtype}, varied_requests(12)
    if "threads" in settings:  # part of the configuration with torch's kernels
        options["threads"] = settings["threads"]
    alone = run(path, requests, max_num_seqs=1, prefix_cache=False, **options)
    drafted = run(path, requests, noisy(alone.tokens()), **{**options, **settings})
    assert drafted.decided() == alone.decided()
    assert drafted.metrics.num_accepted_tokens > 20
    return drafted


@covering(name=KINDS, arithmetic=["torch-float32", "torch-bfloat16", "cpu-float32", "cpu-bfloat16"])
def test_drafts_chunks_and_neighbours_change_nothing(tmp_path, name, arithmetic):
    check(write_model(tmp_path, name), arithmetic, max_num_batched_tokens=24)


@pytest.mark.sweep
@pytest.mark.parametrize("arithmetic", ["torch-float32", "torch-bfloat16", "cpu-float32", "cpu-bfloat16"])
@pytest.mark.parametrize("name", SERVED)
def test_drafts_change_nothing_in_any_architecture(tmp_path, name, arithmetic):
    check(write_model(tmp_path, name), arithmetic, max_num_batched_tokens=24)


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: ",".join(f"{k}={v}" for k, v in s.items()))
@pytest.mark.parametrize("name", ["Exaone4ForCausalLM", "Qwen2MoeForCausalLM"])
def test_no_setting_of_the_engine_changes_an_answer(tmp_path, name, settings):
    drafted = check(write_model(tmp_path, name), "cpu-float32", **settings)
    if "graphs" in settings:
        assert drafted.metrics.graph_steps[settings["graphs"], ""] > 10
    if "kv_memory" in settings:
        assert drafted.metrics.num_preemptions > 0


ODD = {
    "LlamaForCausalLM": {
        "hidden_size": 33,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "intermediate_size": 50,
        "head_dim": 6,
    },
    "GPTNeoXForCausalLM": {"hidden_size": 60, "num_attention_heads": 3, "intermediate_size": 77},
    "Qwen2MoeForCausalLM": {"hidden_size": 40, "moe_intermediate_size": 13, "shared_expert_intermediate_size": 21},
    "CohereForCausalLM": {"hidden_size": 20, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 333},
}
"""Widths that fill no vector, no tile and no line of the cache."""


@pytest.mark.sweep
@pytest.mark.parametrize(
    "arithmetic", ["torch-float32", "torch-bfloat16", "torch-float16", "cpu-float32", "cpu-bfloat16"]
)
@pytest.mark.parametrize("name", ODD)
def test_odd_widths_change_nothing(tmp_path, name, arithmetic):
    check(write_model(tmp_path, name, **ODD[name]), arithmetic, max_num_batched_tokens=24)


@pytest.mark.sweep
@covering(name=KINDS, arithmetic=["torch-float32", "torch-bfloat16", "cpu-float32", "cpu-bfloat16"])
def test_calls_that_torch_splits_among_threads_change_nothing(tmp_path, name, arithmetic):
    """A step of 300 rows has more numbers than torch computes in one thread."""
    wide = {"hidden_size": 512, "intermediate_size": 1030, "moe_intermediate_size": 520}
    wide["shared_expert_intermediate_size"] = 520
    check(write_model(tmp_path, name, **wide), arithmetic, threads=2, max_num_batched_tokens=300)
