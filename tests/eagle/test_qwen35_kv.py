"""Keys and values of the block that drafts within a Qwen3.5 checkpoint follow the committed tokens, and what the prefix
cache gives out is drafted from, as far as the target itself starts there."""

from __future__ import annotations

import pytest
from eagle_engines import Recorder, eagle_engine
from kv_history import assert_eventful, assert_follows_the_truth
from qwen35_blocks import write_target

from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

PROMPT = tuple((7 * i + i // 5) % 300 for i in range(70))


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("model") / "target", num_hidden_layers=2)


@pytest.mark.parametrize(("topk", "block_size", "budget", "dtype"), [(1, 16, 40, "bfloat16"), (3, 4, 16, "float32")])
def test_keys_and_values_follow_a_random_history(target, topk, block_size, budget, dtype):
    options = {"block_size": block_size, "max_num_batched_tokens": budget, "dtype": dtype, "settings": {"topk": topk}}
    assert_eventful(assert_follows_the_truth(target, target, 3, default_plugins=True, **options))


def test_a_prompt_that_is_cached_is_drafted_for_as_if_it_were_not(target):
    def second(prefix_cache):
        recorder = Recorder()
        engine = eagle_engine(target, target, planner=recorder, prefix_cache=prefix_cache)
        run_requests(engine, [toy_request("first", PROMPT, max_tokens=4, ignore_eos=True)])
        recorder.drafts.clear()
        outcome = run_requests(engine, [toy_request("second", (*PROMPT, 5), max_tokens=9, ignore_eos=True)])
        return outcome.outputs["second"].steps[0].cached_tokens, outcome.tokens(), recorder.drafts

    cached, *hit = second(prefix_cache=True)
    none, *computed = second(prefix_cache=False)
    assert (cached, none) == (64, 0)
    assert hit == computed
    assert len(hit[1]) > 5
