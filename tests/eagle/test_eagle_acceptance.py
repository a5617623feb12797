"""A target that drafts for itself is right, greedy and sampled: drafts come from the same logits and the same noise."""

from __future__ import annotations

import msgspec
import pytest
from eagle_engines import eagle_engine, write_target

from covering import covering
from specserve_workbench.testing.engines import accepted, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

pytestmark = pytest.mark.usefixtures("each_kernel_set")

NUM_TOKENS = 31


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return write_target(tmp_path_factory.mktemp("target"))


def requests_at(temperature, count=8):
    return [
        toy_request(
            f"{i}", range(i, 3 * i + 5), max_tokens=NUM_TOKENS, ignore_eos=True, temperature=temperature, seed=i
        )
        for i in range(count)
    ]


@covering(
    ("each_kernel_set", "dtype"), ("each_kernel_set", "temperature"), ("batch_size", "temperature"),
    each_kernel_set=["torch", "cpu"], temperature=[0.0, 0.8], dtype=["float32", "bfloat16"], batch_size=[1, 8],
    indirect=["each_kernel_set"],
)  # fmt: skip
def test_a_target_that_drafts_for_itself_is_accepted(target, temperature, dtype, batch_size):
    engine = eagle_engine(target, target, steps=3, dtype=dtype, max_num_seqs=batch_size)
    outcome = run_requests(engine, requests_at(temperature))
    good, drafted = accepted(outcome)
    assert good >= 0.98 * drafted
    # each step has 3 draft tokens but the last, which has what is missing
    steps = -(-(NUM_TOKENS - 1) // 4)
    assert drafted >= len(outcome.outputs) * (NUM_TOKENS - 1 - steps)
    assert outcome.decided() == run(target, requests_at(temperature), dtype=dtype).decided()


@pytest.mark.parametrize(("architecture", "config"), [
    ("mistral", {"sliding_window": 9}), ("qwen2", {}), ("qwen3", {"tie_word_embeddings": True}),
])  # fmt: skip
def test_a_target_of_any_family_drafts_for_itself(tmp_path, architecture, config):
    target = write_target(tmp_path / "target", architecture=architecture, **config)
    good, drafted = accepted(run_requests(eagle_engine(target, target, steps=3), requests_at(0.8)))
    assert drafted > 100
    assert good >= 0.98 * drafted


def test_a_target_that_drafts_for_itself_foresees_penalties_biases_and_cutoffs(target):
    requests = [
        msgspec.structs.replace(request, params=msgspec.structs.replace(request.params, stop=(), stop_token_ids=()))
        for request in varied_requests(24, vocab_size=64)
    ]
    good, drafted = accepted(run_requests(eagle_engine(target, target, steps=4), requests))
    assert drafted > 200
    assert good >= 0.98 * drafted


def test_survival_estimates_of_a_sampled_request_are_those_of_its_own_temperature(target):
    """Where the draft model is the target, survival 1 - epsilon is promised and kept."""
    seen = []
    engine = eagle_engine(target, target, steps=2)
    choose = engine.planner.choose

    def watched(requests, budget, base_rows):
        seen.extend(draft.survival for request in requests if (draft := request.draft) is not None)
        return choose(requests, budget, base_rows)

    engine.planner.choose = watched
    run_requests(engine, requests_at(0.8))
    assert len(seen) > 50
    assert all(1 >= first >= second > 0 for first, second in (pair for pair in seen if len(pair) == 2))
