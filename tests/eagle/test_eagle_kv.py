"""The draft layers' keys and values follow the committed tokens: after any history they are those of a fresh
computation of the same tokens, bit for bit, and so are the hidden states that blocks keep."""

from __future__ import annotations

import pytest
from eagle_engines import KINDS, TREE_KINDS, is_by_slot, write_draft, write_target
from kv_history import assert_eventful, assert_follows_the_truth

WIDE_HEAD = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16}
"""The same tensors as heads of 16 numbers, which the native layout by panels needs."""


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


def history_of(tmp_path, target, kind, *, seed=3, **options):
    wide = WIDE_HEAD if kind != "standalone" and options["block_size"] == 16 and options["default_plugins"] else {}
    return assert_follows_the_truth(target, write_draft(tmp_path / "draft", kind, target, **wide), seed, **options)


@pytest.mark.parametrize(("kind", "topk", "native", "block_size", "budget", "dtype"), [
    ("eagle3", 3, False, 4, 16, "float32"),
    ("eagle3", 1, True, 16, 24, "bfloat16"),
    ("eagle3", 3, True, 1, 64, "float32"),
    ("eagle", 1, False, 16, 64, "bfloat16"),
    ("mtp", 2, True, 16, 512, "float32"),
    ("mtp", 1, True, 4, 40, "bfloat16"),
    ("dspark", 1, True, 16, 24, "float32"),
    ("dspark", 1, False, 4, 40, "bfloat16"),
    ("standalone", 1, True, 16, 24, "float32"),
    ("standalone", 2, True, 4, 16, "float32"),
])  # fmt: skip
def test_keys_and_values_follow_a_random_history(tmp_path, target, kind, topk, native, block_size, budget, dtype):
    options = {"default_plugins": native, "block_size": block_size, "max_num_batched_tokens": budget, "dtype": dtype}
    options["settings"] = {"topk": topk}
    history = history_of(tmp_path, target, kind, **options)
    assert_eventful(history)
    assert is_by_slot(history.engine) != (native and block_size == 16 and kind != "standalone")


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_keys_and_values_follow_every_random_history(tmp_path, target, kind, native, block_size, seed):
    options = {
        "default_plugins": native, "block_size": block_size, "max_num_batched_tokens": (12, 40, 100, 512)[seed],
        "dtype": ("float32", "bfloat16")[seed % 2],
        "settings": {"topk": (1, 3, 2, 1)[seed] if kind in TREE_KINDS else 1},
    }  # fmt: skip
    history_of(tmp_path, target, kind, seed=100 + seed, **options)
