"""The draft layers' keys and values follow the committed tokens: after any history they are those of a fresh
computation of the same tokens, bit for bit, and so are the hidden states that blocks keep."""

from __future__ import annotations

import pytest
import torch
from eagle_engines import (
    draft_kv,
    eagle_engine,
    fresh_draft_kv,
    is_by_slot,
    runtime_of,
    write_draft,
    write_target,
)
from kv_history import History, two_turns

BYTES_PER_TOKEN = {"standalone": 2048, "eagle": 1152 + 160, "eagle3": 1152 + 480, "mtp": 1152 + 160}
"""About what the toys take in float32."""
WIDE_HEAD = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
"""The same tensors as heads of 16 numbers, which the native layout by panels needs."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


def assert_follows_the_truth(target, draft, seed, *, num_tokens=230, kind="eagle3", **options):
    """`num_tokens`: of all requests together that fit in the cache."""
    memory = str(int(BYTES_PER_TOKEN[kind] * num_tokens + 8 * 8 * 256))
    answers = two_turns(target, seed, **{name: options[name] for name in ("dtype", "default_plugins")})
    engine = eagle_engine(target, draft, max_num_seqs=4, kv_memory=memory, **options)
    history = History(engine, answers, seed).run()
    assert not engine.metrics.drafter_faults
    fresh = {name: fresh_draft_kv(target, draft, answers[name], **options) for name in answers}
    for name, kv in history.snapshots:
        count = len(kv.tokens)
        assert torch.equal(kv.data, fresh[name].data[:, :, :count]), (name, count)
        if kv.states is not None:
            assert torch.equal(kv.states, fresh[name].states[: len(kv.states)]), (name, count)
    assert_published_blocks_are_complete(history, fresh)
    return history


def assert_published_blocks_are_complete(history, fresh):
    runtime, size = runtime_of(history.engine), history.engine.scheduler.block_size
    for request, index, block in history.published():
        assert runtime.notes.hash_of[block] == request.hashes[index]
        data = runtime.attention.cache.data[:, :, block * size : (block + 1) * size]
        expected = fresh[request.id].data[:, :, index * size : (index + 1) * size]
        first = int(runtime.layers.reads_hidden and index == 0)  # position 0 has no key
        if first and not is_by_slot(history.engine):
            continue
        assert torch.equal(data[:, :, first:], expected[:, :, first:]), (request.id, index)
        if runtime.notes.states is not None:
            assert torch.equal(runtime.notes.states[block], fresh[request.id].states[index])


def assert_eventful(history):
    metrics = history.engine.metrics
    assert metrics.num_preemptions > 0
    assert metrics.prefix_cache_hits > 0
    assert metrics.request_success["abort"] > 0
    assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
    assert len(history.snapshots) > 50


@pytest.mark.parametrize(("kind", "native", "block_size", "budget", "dtype"), [
    ("eagle3", False, 4, 16, "float32"),
    ("eagle3", True, 16, 24, "bfloat16"),
    ("eagle3", True, 1, 64, "float32"),
    ("eagle", False, 16, 64, "bfloat16"),
    ("mtp", True, 4, 512, "float32"),
    ("standalone", True, 16, 24, "float32"),
    ("standalone", False, 4, 16, "float32"),
])  # fmt: skip
def test_keys_and_values_follow_a_random_history(tmp_path, target, kind, native, block_size, budget, dtype):
    history = assert_follows_the_truth(
        target, write_draft(tmp_path / "draft", kind, target), 3, kind=kind, default_plugins=native,
        block_size=block_size, max_num_batched_tokens=budget, dtype=dtype,
    )  # fmt: skip
    assert_eventful(history)
