"""Acceptance with an adapter that has learned."""

from __future__ import annotations

import pytest
from trained_adapters import train_adapter
from uno_engines import uno_engine

from draft_adapters import BLOCK
from specserve_workbench.testing.engines import plain_run, run_requests
from specserve_workbench.testing.requests import toy_request

REQUESTS = [toy_request(f"r{i}", range(9 * i + 3, 9 * i + 8), max_tokens=30, ignore_eos=True) for i in range(3)]


@pytest.fixture(scope="module")
def trained(uno_target, tmp_path_factory):
    made = plain_run(uno_target, REQUESTS).tokens()
    texts = [(5, [*request.prompt_token_ids, *made[request.request_id]]) for request in REQUESTS]
    return train_adapter(tmp_path_factory.mktemp("trained") / "adapter", uno_target, texts, 20)


def accepted_of_each_draft(target, adapter):
    run = run_requests(uno_engine(target, adapter, default_plugins=True), REQUESTS)
    assert not run.metrics.drafter_faults
    steps = sum(result.steps[-1].stats.num_spec_steps for result in run.outputs.values())
    return run.metrics.num_accepted_tokens / steps


def test_an_adapter_that_has_learned_is_accepted_more_than_a_random_one(uno_target, draft_adapter, trained):
    assert 1.0 <= accepted_of_each_draft(uno_target, draft_adapter) < 1.5, "little more than the certain token"
    assert 5.0 < accepted_of_each_draft(uno_target, trained) <= BLOCK
