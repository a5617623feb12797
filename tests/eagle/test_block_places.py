"""Tokens at the places of blocks: they depend neither on how many are scored together nor on the trees beside them."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from eagle_engines import drafter_of, eagle_engine, write_target
from test_eagle_native import Drafts
from toy_block_heads import H, random_block_head, write_block_head

from specserve.api import BlockRows, DraftToken, SamplingParams
from specserve_eagle.block import places as module
from specserve_eagle.block.places import Place, Places, with_confidence
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

FORMS = ("dspark", "gated", "rnn")


class Given(NamedTuple):
    """What `Places` is made of: a head, and four rows of random numbers for each request."""

    head: object
    rows: BlockRows
    requests: list


@pytest.fixture(scope="module", params=FORMS)
def given(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    engine = eagle_engine(write_target(path / "target"), write_block_head(path / "head", request.param))
    generator = torch.Generator().manual_seed(0)
    logits, states = (torch.randn(12, size, generator=generator) for size in (64, H))
    requests = [SimpleNamespace(tokens=[i], processors=(), params=SamplingParams(temperature=0.0)) for i in range(3)]
    return Given(drafter_of(engine).model.head, BlockRows(logits, states), requests)


def places_of(given):
    return Places(given.head, given.rows, given.requests, [4, 4, 4])


def two_levels(places, counts):
    """Of three blocks with seven nodes each."""
    first = places.best([Place(block, ()) for block in range(3)], [7] * 3)
    level = [Place(block, (token,), block) for block in range(3) for token, _ in first[block]]
    return [first, places.best(level, counts(level))]


def test_parts_that_are_scored_together_change_no_token(given, monkeypatch):
    sizes, choose = [], module.choose

    def watched(sampler, scores, *rest):
        sizes.append(len(scores))
        return choose(sampler, scores, *rest)

    monkeypatch.setattr(module, "choose", watched)
    whole = two_levels(places_of(given), lambda level: [4] * len(level))
    assert sizes == [3, 21]
    sizes.clear()
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 8)
    places = places_of(given)
    parts = two_levels(places, lambda level: [4] * len(level))
    assert sizes == [3, 8, 8, 5]
    assert parts == whole
    assert places.memory is None or len(places.memory) == 21


def test_a_place_has_the_same_tokens_beside_one_that_wants_more(given):
    narrow = two_levels(places_of(given), lambda level: [2] * len(level))[1]
    mixed = two_levels(places_of(given), lambda level: [2 + 5 * (i % 2) for i in range(len(level))])[1]
    assert mixed[::2] == narrow[::2]
    assert {len(tokens) for tokens in mixed[1::2]} == {7}


@pytest.mark.usefixtures("each_kernel_set")
@pytest.mark.parametrize("each_kernel_set", ["torch", "cpu"], indirect=True)
@pytest.mark.parametrize("topk", [1, 3])
def test_where_a_confidence_is_no_number_chains_and_trees_end_alike(tmp_path, topk):
    """Finite weights whose products are infinities of both signs."""
    head = random_block_head("dspark")
    largest = torch.finfo(torch.float32).max
    head["confidence_head.proj.weight"] = torch.full_like(head["confidence_head.proj.weight"], largest)
    head["norm.weight"] = torch.full_like(head["norm.weight"], 1e3)
    recorder = Drafts()
    path = write_block_head(tmp_path / "head", "dspark", head)
    settings = {"steps": 16, "topk": topk}
    engine = eagle_engine(write_target(tmp_path / "target"), path, settings=settings, planner=recorder)
    run_requests(engine, [toy_request("r", range(1, 9), max_tokens=20, ignore_eos=True)])
    assert not engine.metrics.drafter_faults


def test_no_token_follows_from_a_confidence_that_is_no_number():
    assert with_confidence([DraftToken(1, 0.5)], math.nan) == []
