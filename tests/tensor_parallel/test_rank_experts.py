"""Mixtures of experts on two ranks: a layer's experts are gathered once, and have the same bits in any company."""

from __future__ import annotations

import pytest
from rank_engines import assert_same_as_one_rank, ranks_of

from specserve_workbench.testing.engines import run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request, varied_requests, without_drafts
from specserve_workbench.testing.toy import write_checkpoint

REPEATING = [toy_request(f"r{i}", [5 + i, 6, 7, 8] * 9, max_tokens=30, logit_bias={6: 20.0}) for i in range(3)]


@pytest.fixture(scope="module", params=["torch", "cpu"])
def engine(request, tmp_path_factory):
    """Of gpt-oss, whose experts have biases."""
    model = write_checkpoint(tmp_path_factory.mktemp("model"), architecture="gpt_oss")
    options = {"dtype": "bfloat16", "default_plugins": request.param == "cpu", "max_num_batched_tokens": 40}
    with ranks_of(model, 2, ("ngram",), **options) as engine:
        yield verify_everything(engine)


def test_a_layers_experts_are_gathered_once(engine, monkeypatch):
    group, sizes = engine.runner.model.part.group, []
    gather = group.gather
    monkeypatch.setattr(group, "gather", lambda x: sizes.append(x.shape) or gather(x))
    run_requests(engine, [toy_request("a", range(3, 12), max_tokens=1)])
    rows = engine.runner.kernels.row_tile or 9
    assert sizes == [(rows, 128)] * (1 + 2 * 2), "the embedding; of two layers attention and experts"


def test_drafts_chunks_and_neighbours_change_no_bit(engine):
    requests = [*varied_requests(6, seed=3), *REPEATING]
    engine.reset_prefix_cache()
    together = run_requests(engine, requests)
    assert together.metrics.num_accepted_tokens > 20
    alone = {}
    for request in without_drafts(requests):
        engine.reset_prefix_cache()
        alone |= run_requests(engine, [request]).decided()
    assert together.decided() == alone


def test_two_ranks_choose_the_tokens_of_one_with_biases_of_experts(tmp_path):
    """The first rank alone adds them. The inner width does not divide evenly."""
    model = write_checkpoint(tmp_path / "model", architecture="gpt_oss", intermediate_size=97)
    assert_same_as_one_rank(model, [toy_request(f"g{i}", range(i, i + 30), logprobs=2) for i in range(3)])
