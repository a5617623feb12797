"""Drafts of assistants change nothing: batches, dtypes, tight caches, prefix hits, and beside other plugins."""

from __future__ import annotations

from functools import partial

import pytest
from eagle_engines import Recorder, assert_drafted_for_as_if_not_cached, eagle_engine, eagle_options
from toy_assistants import CLUSTERED, write_assistant, write_gemma4

import drafted_requests
from covering import covering
from drafted_requests import assert_answers_are_plain
from specserve_workbench.testing.engines import (
    make_engine,
    plain_run,
    run,
    run_requests,
    verify_everything,
)
from specserve_workbench.testing.requests import STRUCTURED, structured_requests, toy_request
from toy_adapters import lora_of, lora_options, under, write_adapters

CHAINS, TREES = {"steps": 3}, {"steps": 3, "topk": 3}


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_gemma4(tmp_path_factory.mktemp("target") / "target")


@pytest.fixture(scope="module")
def assistant(target, tmp_path_factory):
    return write_assistant(tmp_path_factory.mktemp("draft") / "assistant", target)


mixed_requests = partial(drafted_requests.mixed_requests, preference=19.0)
"""A random assistant is often right about these."""


def assert_lossless(target, assistant, requests, *, settings=CHAINS, **options):
    engine = eagle_engine(target, assistant, settings=settings, **options)
    assert_answers_are_plain(engine, target, requests, **options)
    return engine


@pytest.mark.usefixtures("each_kernel_set")
@covering(each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"], batch_size=[1, 8, 32], dtype=[
    "float32", "bfloat16",
], settings=[CHAINS, TREES])  # fmt: skip
def test_drafts_change_nothing(target, assistant, batch_size, dtype, settings):
    requests = mixed_requests(7 if batch_size == 1 else 12)  # one after the other they take many steps
    assert_lossless(target, assistant, requests, settings=settings, max_num_seqs=batch_size, dtype=dtype)


def test_logits_of_clusters_change_nothing(target, tmp_path):
    clustered = write_assistant(tmp_path / "clustered", target, **CLUSTERED)
    assert_lossless(target, clustered, mixed_requests(12), settings=TREES, default_plugins=True)


def test_the_products_own_planner_and_depth_change_nothing(target, assistant):
    requests = mixed_requests(12, seed=2)
    engine = make_engine(target, **eagle_options(assistant), default_plugins=True).engine
    drafted = run_requests(engine, requests)
    assert not drafted.metrics.drafter_faults
    assert drafted.metrics.num_draft_tokens > 0
    assert drafted.decided() == plain_run(target, requests, default_plugins=True).decided()


@pytest.mark.parametrize(
    "options",
    [{"kv_memory": "160K"}, {"max_num_batched_tokens": 24}, {"block_size": 64}, {"prefix_cache": False}],
    ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()),
)
def test_drafts_change_nothing_when_everything_else_is_tight(target, assistant, options):
    """Preemption, chunks, large blocks and prompts that are computed twice."""
    requests = [each for each in mixed_requests(12, seed=1) if len(each.prompt_token_ids) < 150]
    engine = assert_lossless(target, assistant, requests, default_plugins=True, dtype="bfloat16", **options)
    assert (engine.metrics.num_preemptions > 0) == ("kv_memory" in options)


def test_drafts_end_with_the_context(target, assistant):
    requests = [toy_request(f"r{i}", range(1, 30 + i), max_tokens=99, ignore_eos=True) for i in range(3)]
    planner = Recorder()
    engine = eagle_engine(target, assistant, planner=planner, max_model_len=64, default_plugins=True)
    drafted = run_requests(engine, requests)
    assert drafted.decided() == run(target, requests, max_model_len=64, default_plugins=True).decided()
    assert engine.metrics.request_success["length"] == 3
    assert not drafted.metrics.drafter_faults
    assert max(length + len(draft) for (_, length), draft in planner.drafts.items()) <= 64


def test_a_prompt_that_is_cached_is_drafted_for_as_if_it_were_not(target, assistant):
    assert_drafted_for_as_if_not_cached(target, assistant)


BESIDE = {
    "ngram": {"ngram": {}},
    "lora": {},
    "grammar": {"grammar": {}},
    "hybrid_attn": {"hybrid_attn": {"prefill": "sdpa", "decode": "cpu_paged", "verify": "cpu_paged"}},
    "adaptive": {"adaptive": {"cost_cache": "none"}},
    "int8": {"cpu": {"weights": "int8", "kv": "int8"}},
}
"""By what stands beside, its options."""


@pytest.mark.parametrize("beside", BESIDE)
def test_drafts_change_nothing_beside(target, assistant, tmp_path, beside):
    tables = {"cpu": {}} | BESIDE[beside]
    requests = [*mixed_requests(12, seed=4), *(structured_requests(STRUCTURED) if beside == "grammar" else ())]
    if beside == "lora":
        adapters = write_adapters(tmp_path / "adapters", target, 2)
        tables |= lora_options(adapters, max_loaded=4)

    def served(engine):
        if beside != "lora":
            return run_requests(engine, requests)
        names = [None, *adapters]
        return run_requests(engine, under(lora_of(engine), requests, [names[i % 3] for i in range(len(requests))]))

    plain = {name: table for name, table in tables.items() if name not in ("ngram", "adaptive")}
    if beside == "hybrid_attn":
        plain["hybrid_attn"] = plain["hybrid_attn"] | {"verify": "decode"}  # nothing is verified
    expected = served(make_engine(target, plugins=tuple(plain), plugin_options=plain).engine).decided()
    tables["eagle"] = {"model": str(assistant), **CHAINS}
    engine = make_engine(target, plugins=tuple(tables), plugin_options=tables).engine
    drafted = served(engine if beside == "adaptive" else verify_everything(engine))
    assert not drafted.metrics.drafter_faults
    assert drafted.decided() == expected
    assert drafted.metrics.accepted_tokens_by_drafter["eagle"] > 0


@pytest.mark.parametrize("graphs", ["full", "piecewise"])
def test_drafts_change_nothing_beside_graphs(tmp_path, graphs):
    """Heads of one size: steps of others are not recorded."""
    target = write_gemma4(tmp_path / "target", global_head_dim=16)
    assistant = write_assistant(tmp_path / "assistant", target)
    engine = assert_lossless(
        target, assistant, mixed_requests(12), graphs=graphs, graph_buckets=(4, 8, 40), default_plugins=True
    )
    assert engine.metrics.graph_steps[graphs, ""] > 10
