"""The test kit's plain runs: one for all that may expect nothing else, another where anything that decides differs."""

from __future__ import annotations

import pytest

from specserve_workbench.testing.engines import plain_run
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

REQUESTS = varied_requests(3)


@pytest.mark.parametrize("options", [{"block_size": 4}, {"max_num_batched_tokens": 16}, {"prefix_cache": False}])
def test_options_of_scheduling_share_one(toy_model, options):
    assert plain_run(toy_model, REQUESTS, **options) is plain_run(toy_model, REQUESTS)


@pytest.mark.parametrize(
    "options", [{"dtype": "bfloat16"}, {"plugins": ("cpu",)}, {"max_model_len": 500}, {"extra": {}}]
)
def test_what_may_decide_a_token_has_one_of_its_own(toy_model, options):
    assert plain_run(toy_model, REQUESTS, **options) is not plain_run(toy_model, REQUESTS)
    assert plain_run(toy_model, REQUESTS[:2]) is not plain_run(toy_model, REQUESTS)


def test_a_checkpoint_that_is_written_again_has_another(tmp_path):
    model = write_checkpoint(tmp_path / "model")
    before = plain_run(model, REQUESTS)
    write_checkpoint(model, hidden_size=32)
    assert plain_run(model, REQUESTS).tokens() != before.tokens()
