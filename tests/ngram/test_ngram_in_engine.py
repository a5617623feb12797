"""The drafter in a running engine: at the end the index has the text of all requests, whatever happened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fake_index import FakeIndex

from specserve.types import SpeculationParams
from specserve_ngram.drafter import NgramDrafter
from specserve_workbench.testing.engines import assert_lossless, make_engine, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("options", [{}, {"kv_memory": "440K", "max_num_batched_tokens": 48}])
def test_every_committed_token_is_fed_once_and_in_order(toy_model: Path, options: dict[str, str]) -> None:
    index, requests = FakeIndex(), varied_requests(24)
    run = assert_lossless(toy_model, requests, lambda outputs: NgramDrafter(index), **options)  # type: ignore[arg-type]
    if options:
        assert run.metrics.num_preemptions > 0
    said = [[*request.prompt_token_ids, *run.outputs[request.request_id].tokens] for request in requests]
    assert sorted(index.ended.values()) == sorted(said)
    assert not index.texts


def test_an_aborted_request_leaves_its_text_and_nothing_else(toy_model: Path) -> None:
    index = FakeIndex()
    drafter = NgramDrafter(index)  # type: ignore[arg-type]
    engine = make_engine(toy_model, drafter).engine
    request = engine.add(toy_request("gone", (5, 6, 6), max_tokens=20, ignore_eos=True))
    engine.add(toy_request("waits", (1, 2, 3), max_tokens=20))
    for _ in range(4):
        engine.step()
    engine.abort("gone")
    assert index.ended == {1: request.tokens}
    run_requests(engine, [])
    assert not drafter.requests
    assert not index.texts


def test_a_request_that_declines_speculation_is_learned_from(toy_model: Path) -> None:
    index = FakeIndex()
    quiet = toy_request("quiet", (1, 2, 3), ignore_eos=True, speculation=SpeculationParams(enabled=False))
    run = run_requests(make_engine(toy_model, NgramDrafter(index)).engine, [quiet])  # type: ignore[arg-type]
    assert index.steps == []
    assert index.ended == {1: [1, 2, 3, *run.outputs["quiet"].tokens]}
