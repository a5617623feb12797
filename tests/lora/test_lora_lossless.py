"""Losslessness under adapters: drafts change nothing, in chains and trees, greedy and sampled, with any neighbours."""

from __future__ import annotations

import pytest

from covering import covering
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, run_requests, verify_everything
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint
from specserve_workbench.testing.travelling import let_batches_travel
from toy_adapters import lora_engine, under


def spread(adapters, count):
    names = [None, *adapters]
    return [names[i % len(names)] for i in range(count)]


def assert_lossless(model, adapters, requests, **options):
    """Returns the run with drafts."""
    plain, store = lora_engine(model, adapters, **options)
    expected = run_requests(plain, under(store, requests, spread(adapters, len(requests))))
    drafter = NoisyDrafter(expected.tokens(), p=0.7, max_width=16, vocab_size=TOY_VOCAB)
    engine, store = lora_engine(model, adapters, drafter, **options)
    received = let_batches_travel(engine)
    guessed = run_requests(engine, under(store, requests, spread(adapters, len(requests))))
    assert {span.adapter for batch in received for span in batch.spans} == {"", *store.names().values()}
    assert not guessed.metrics.drafter_faults
    assert guessed.decided() == expected.decided()
    good, drafted = accepted(guessed)
    assert 0.15 < good / drafted < 0.9
    return guessed


@pytest.mark.usefixtures("each_kernel_set")
@covering(indirect=["each_kernel_set"], each_kernel_set=["torch", "cpu"], options=[
    {},
    {"dtype": "bfloat16", "max_num_seqs": 32},
    {"kv_memory": "440K"},
    {"max_num_batched_tokens": 24},
    {"prefix_cache": False},
])  # fmt: skip
def test_noisy_chains_and_trees_change_nothing(toy_model, adapters, options):
    assert_lossless(toy_model, adapters, varied_requests(36), **options)


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3", "gemma2", "ministral3"])
def test_noisy_drafts_change_nothing_on_other_families(tmp_path, adapters, architecture):
    """These have the toy Llama's shapes, so its adapters fit."""
    model = write_checkpoint(tmp_path / "model", architecture=architecture)
    assert_lossless(model, adapters, varied_requests(24, seed=2), default_plugins=True)


@pytest.mark.parametrize("settings", [
    {"prefill": "sdpa", "decode": "cpu_paged"},
    {"prefill": "cpu_paged", "decode": "cpu_paged", "verify": "sdpa"},
], ids=lambda s: "-".join(s.values()))  # fmt: skip
def test_noisy_drafts_change_nothing_between_two_backends(toy_model, adapters, settings):
    """The plain run decodes with what verifies."""
    requests, names = varied_requests(24, seed=5), spread(adapters, 24)
    options = {"beside": ("hybrid_attn",), "default_plugins": True}
    same = {"prefill": settings["prefill"], "decode": settings.get("verify", settings["decode"])}
    plain, store = lora_engine(toy_model, adapters, plugin_options={"hybrid_attn": same}, **options)
    expected = run_requests(plain, under(store, requests, names))
    drafter = NoisyDrafter(expected.tokens(), p=0.7, max_width=16, vocab_size=TOY_VOCAB)
    engine, store = lora_engine(toy_model, adapters, drafter, plugin_options={"hybrid_attn": settings}, **options)
    guessed = run_requests(engine, under(store, requests, names))
    assert guessed.decided() == expected.decided()
    assert guessed.metrics.num_accepted_tokens > 50


@pytest.mark.usefixtures("each_kernel_set")
def test_ngram_changes_nothing_and_is_accepted_within_an_adapter(toy_model, adapters):
    """Twice: the second time the index has seen all answers of the same adapter."""
    requests, names = varied_requests(27, seed=4), spread(adapters, 27)
    plain, store = lora_engine(toy_model, adapters)
    expected = run_requests(plain, under(store, requests, names)).decided()
    tables = {"ngram": {"min_survival": 0.01}}
    engine, store = lora_engine(toy_model, adapters, beside=("ngram",), plugin_options=tables)
    requests = under(store, requests, names)
    verify_everything(engine)
    assert run_requests(engine, requests).decided() == expected
    before = engine.metrics.num_accepted_tokens
    assert run_requests(engine, requests).decided() == expected
    assert engine.metrics.num_accepted_tokens - before > 200
