"""Requests that name their drafters, under each mode of the planner: the same tokens, and no draft of another."""

from __future__ import annotations

import msgspec
import pytest
from test_adaptive_lossless import adaptive_engine, requests_of

from specserve.types import SpeculationParams
from specserve_workbench.testing.engines import plain_run, run_requests

LISTS = (None, ("ngram",), ("eagle",), (), ("eagle", "ngram"))


@pytest.mark.parametrize("mode", ["ranked", "throughput", "latency", "tiers", "static"])
def test_tokens_stay_and_only_the_named_drafters_propose(toy_model, mode):
    requests = [
        msgspec.structs.replace(each, speculation=SpeculationParams(drafters=LISTS[i % len(LISTS)]))
        for i, each in enumerate(requests_of(20))
    ]
    engine = adaptive_engine(
        toy_model, drafters=("ngram", "eagle"), mode=mode, tables={"eagle": {"model": str(toy_model), "topk": 2}}
    )
    outcome = run_requests(engine, requests)
    bare = [msgspec.structs.replace(each, speculation=SpeculationParams(enabled=False)) for each in requests]
    assert outcome.decided() == plain_run(toy_model, bare).decided()
    assert not engine.metrics.faults.counts
    seen = set()
    for request in requests:
        allowed, drafted = (
            request.speculation.drafters,
            {*outcome.outputs[request.request_id].steps[-1].stats.by_drafter},
        )
        assert allowed is None or drafted <= {*allowed}
        seen |= {(allowed, name) for name in drafted}
    assert mode == "latency" or {(("ngram",), "ngram"), (("eagle",), "eagle")} <= seen
