"""Drafts change nothing on two ranks: with every drafter, under adapters and grammars, greedy and sampled."""

from __future__ import annotations

import pytest
from eagle_engines import write_draft, write_target
from rank_engines import ranks_of

from specserve_grammar.sources import KINDS
from specserve_workbench.testing.composers import everything
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, drafter_plugin, plain_run, run_requests, verify_everything
from specserve_workbench.testing.requests import TOY_VOCAB, structured_requests, varied_requests, without_drafts
from toy_adapters import lora_of, lora_options, under, write_adapters


def assert_lossless(engine, requests):
    """Runs them without drafts and with all of them verified. The accepted and the verified draft tokens."""
    expected = run_requests(engine, without_drafts(requests))
    before = accepted(expected)
    engine.reset_prefix_cache()
    speculative = run_requests(verify_everything(engine), requests)
    assert not speculative.metrics.drafter_faults
    assert speculative.decided() == expected.decided()
    good, drafted = (after - earlier for after, earlier in zip(accepted(speculative), before, strict=True))
    assert 0 < good <= drafted
    return good, drafted


@pytest.mark.parametrize("kernels", ["torch", "cpu"])
def test_noisy_chains_and_trees_change_nothing(toy_model, kernels):
    """What is accepted of a tree is moved in the cache of every rank."""
    requests, options = varied_requests(16), {"default_plugins": kernels == "cpu"}
    texts = plain_run(toy_model, requests, **options).tokens()
    noise = drafter_plugin(lambda: NoisyDrafter(texts, p=0.7, max_width=16, vocab_size=TOY_VOCAB), everything())
    with ranks_of(toy_model, extra={"drafter": noise}, **options) as engine:
        good, drafted = assert_lossless(engine, requests)
    assert 0.15 < good / drafted < 0.9


def test_ngram_grammar_and_adapters_change_nothing_together(toy_model, tmp_path):
    """Structured requests, and others under five adapters of all projections and ranks."""
    adapters = write_adapters(tmp_path / "adapters", toy_model, 5)
    tables = lora_options(adapters, max_loaded=8)
    with ranks_of(toy_model, 2, ("ngram", "grammar", "lora"), tables, default_plugins=True) as engine:
        plain = [*structured_requests(KINDS), *varied_requests(13, seed=5)]
        names = [None if i % 6 == 0 else f"a{i % 5}" for i in range(len(plain))]
        assert_lossless(engine, under(lora_of(engine), plain, names))


@pytest.mark.parametrize(("kind", "settings", "kernels"), [
    ("standalone", {"steps": 3, "topk": 3}, "torch"),
    pytest.param("eagle", {"steps": 3}, "cpu", marks=pytest.mark.sweep),  # its embedding and its head are the target's
    ("eagle3", {"steps": 3}, "cpu"),
])  # fmt: skip
def test_draft_models_change_nothing(tmp_path, kind, settings, kernels):
    target = write_target(tmp_path / "target")
    draft = write_draft(tmp_path / "draft", kind, target)
    tables = {"eagle": {"model": str(draft), **settings}}
    with ranks_of(target, 2, ("eagle",), tables, default_plugins=kernels == "cpu") as engine:
        assert_lossless(engine, varied_requests(10, vocab_size=64))


def test_hybrid_attention_on_every_rank_changes_nothing(toy_model):
    """The others choose their backends by what rank 0 knows: that drafts are verified."""
    requests = varied_requests(10, seed=6)
    tables = {"hybrid_attn": {"prefill": "sdpa", "verify": "cpu_paged"}}
    with ranks_of(toy_model, 2, ("hybrid_attn", "ngram"), tables, default_plugins=True) as engine:
        assert engine.runner.attention.name == "hybrid(prefill=sdpa, verify=cpu_paged)"
        assert_lossless(engine, requests)


def test_adaptive_plans_on_ranks_and_changes_nothing(toy_model):
    requests = varied_requests(10, seed=7)
    with ranks_of(toy_model, 2, ("ngram", "adaptive"), default_plugins=True) as engine:
        expected = run_requests(engine, without_drafts(requests))
        engine.reset_prefix_cache()
        assert run_requests(engine, requests).decided() == expected.decided()
