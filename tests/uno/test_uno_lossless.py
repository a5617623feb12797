"""Losslessness with the draft adapter: batches, dtypes, tight caches, preemption, prefix hits, families."""

from __future__ import annotations

import pytest
from uno_engines import uno_engine

from covering import covering
from draft_adapters import BLOCK, write_draft_adapter
from drafted_requests import assert_answers_are_plain, mixed_requests
from specserve_workbench.testing.engines import run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import write_checkpoint


def assert_lossless(target, adapter, requests, **options):
    engine = uno_engine(target, adapter, **options)
    assert_answers_are_plain(engine, target, requests, **options)
    return engine


@pytest.mark.usefixtures("each_kernel_set")
@covering(each_kernel_set=["torch", "cpu"], indirect=["each_kernel_set"], batch_size=[1, 8, 32], dtype=[
    "float32", "bfloat16",
])  # fmt: skip
def test_drafts_change_nothing(uno_target, draft_adapter, batch_size, dtype):
    requests = mixed_requests(20)
    assert_lossless(uno_target, draft_adapter, requests, max_num_seqs=batch_size, dtype=dtype)


def memory_for(num_blocks, target, adapter, **options):
    """The kv_memory of an engine with `num_blocks` blocks for requests."""
    engine = uno_engine(target, adapter, **options)
    cache, (guard,) = engine.parts.cache, engine.drafting.guards
    per_block = cache.blocks[0][0].nbytes * 2 * len(cache.blocks) // len(cache.blocks[0][0])
    most_rows = guard.drafter.target.max_requests * BLOCK
    return str((num_blocks + len(cache.blocks[0][0]) - cache.num_blocks) * per_block + 4 * TOY_VOCAB * most_rows)


@pytest.mark.parametrize(("block_size", "num_blocks"), [(1, 260), (16, 26)])
def test_drafts_change_nothing_where_requests_are_preempted(uno_target, draft_adapter, block_size, num_blocks):
    options = {"block_size": block_size, "default_plugins": True}
    requests = [request for request in mixed_requests(16, seed=1) if len(request.prompt_token_ids) < 300]
    memory = memory_for(num_blocks, uno_target, draft_adapter, **options)
    engine = assert_lossless(uno_target, draft_adapter, requests, kv_memory=memory, **options)
    assert engine.parts.cache.num_blocks == num_blocks
    assert engine.metrics.num_preemptions > 0


@pytest.mark.parametrize(
    "options",
    [{"max_num_batched_tokens": 24}, {"block_size": 64}, {"prefix_cache": False}, {"chunked_prefill": False}],
    ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()),
)
def test_drafts_change_nothing_when_everything_else_is_tight(uno_target, draft_adapter, options):
    assert_lossless(uno_target, draft_adapter, mixed_requests(16, seed=2), default_plugins=True, **options)


@pytest.mark.usefixtures("each_kernel_set")
def test_prefix_hits_are_the_same_and_change_nothing(uno_target, draft_adapter):
    """What drafts wrote is in no cached block: the second time all prompts come from the cache."""
    requests = mixed_requests(12, seed=3)
    plain = [(drafter, cached) for drafter, cached in twice(uno_engine(uno_target, draft_adapter), requests)]
    without = twice(uno_engine(uno_target, draft_adapter, max_draft_tokens=0), requests)
    assert plain == without
    assert sum(plain[1][1].values()) > sum(plain[0][1].values()) > 0


def twice(engine, requests):
    """What was decided, and how many tokens of each request's prompt were cached, each time."""
    runs = [run_requests(engine, requests) for _ in range(2)]
    return [
        (made.decided(), {name: output.steps[-1].cached_tokens for name, output in made.outputs.items()})
        for made in runs
    ]


def test_drafts_end_with_the_context(uno_target, draft_adapter):
    requests = [toy_request(f"r{i}", range(1, 30 + i), max_tokens=99, ignore_eos=True) for i in range(3)]
    engine = assert_lossless(uno_target, draft_adapter, requests, max_model_len=64, default_plugins=True)
    assert engine.metrics.request_success["length"] == 3


@pytest.mark.parametrize("architecture", ["gemma2", "qwen3_moe", "lfm2", "gemma4_text"])
def test_drafts_change_nothing_on_other_families(tmp_path, architecture):
    """With windows, experts, short convolutions, whose vectors of tokens lie in the cache, too, and heads of two
    sizes."""
    target = write_checkpoint(tmp_path / "target", architecture=architecture)
    adapter = write_draft_adapter(tmp_path / "adapter", target, targets=("q_proj", "v_proj"))
    requests = mixed_requests(10, seed=4)
    engine = uno_engine(target, adapter, default_plugins=True)
    assert run_requests(engine, requests).decided() == run(target, requests, default_plugins=True).decided()
    assert not engine.metrics.drafter_faults
    assert engine.metrics.num_accepted_tokens > 20
