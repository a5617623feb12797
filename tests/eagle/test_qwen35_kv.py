"""Keys and values of the block that drafts within a Qwen3.5 checkpoint follow the committed tokens, and what the prefix
cache gives out is drafted from, as far as the target itself starts there."""

from __future__ import annotations

import pytest
from eagle_engines import assert_drafted_for_as_if_not_cached
from kv_history import assert_eventful, assert_follows_the_truth
from qwen35_blocks import write_target

PROMPT = tuple((7 * i + i // 5) % 300 for i in range(70))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("model") / "target", num_hidden_layers=2)


@pytest.mark.parametrize(("topk", "block_size", "budget", "dtype"), [(1, 16, 40, "bfloat16"), (3, 4, 16, "float32")])
def test_keys_and_values_follow_a_random_history(target, topk, block_size, budget, dtype):
    options = {"block_size": block_size, "max_num_batched_tokens": budget, "dtype": dtype, "settings": {"topk": topk}}
    assert_eventful(assert_follows_the_truth(target, target, 3, default_plugins=True, **options))


def test_a_prompt_that_is_cached_is_drafted_for_as_if_it_were_not(target):
    assert_drafted_for_as_if_not_cached(target, target)
