"""Acceptance far below what a draft model's card promises is told, once, and by name."""

from __future__ import annotations

import json
import logging

import pytest
from eagle_engines import KINDS, eagle_engine, write_draft, write_target

from specserve.errors import ModelError
from specserve_eagle.card import ENOUGH_DRAFTS, AcceptanceWatch, Card
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request

PROMISED = [0.9, 0.8]


def engine_with_card(tmp_path, kind, rates, target=None):
    target = target or write_target(tmp_path / "target")
    draft = write_draft(tmp_path / kind, kind, target)
    (draft / "acceptance.json").write_text(json.dumps({"rates": rates}))
    return eagle_engine(target, draft, steps=2)


def warnings_of(caplog, engine, **params):
    """Of a run with a few more drafts than are judged together, and of another one behind it."""
    requests = [toy_request(f"r{i}", (1, 2 + i), max_tokens=1 + ENOUGH_DRAFTS // 2, **params) for i in range(4)]
    with caplog.at_level(logging.WARNING):
        run_requests(engine, requests)
        run_requests(engine, [toy_request("again", (3, 4), max_tokens=2 * ENOUGH_DRAFTS, **params)])
    return [record.getMessage() for record in caplog.records if "card" in record.getMessage()]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "standalone"])
def test_a_draft_model_that_guesses_at_random_is_told_once(caplog, tmp_path, kind):
    (message,) = warnings_of(caplog, engine_with_card(tmp_path, kind, PROMISED))
    assert f"drafter eagle: of {ENOUGH_DRAFTS} greedy drafts" in message
    assert str(tmp_path / kind) in message
    assert "promises 1.62" in message  # 0.9 + 0.9 * 0.8


def test_nothing_is_told_of_a_draft_model_that_keeps_its_promise(caplog, tmp_path):
    engine = engine_with_card(tmp_path, "standalone", PROMISED, target=write_target(tmp_path / "itself"))
    assert warnings_of(caplog, engine) == []


def test_nothing_is_told_of_sampled_requests(caplog, tmp_path):
    engine = engine_with_card(tmp_path, "eagle3", PROMISED)
    assert warnings_of(caplog, engine, temperature=1.0, seed=1) == []


def test_nothing_is_told_without_a_card(caplog, tmp_path):
    target = write_target(tmp_path / "target")
    engine = eagle_engine(target, write_draft(tmp_path / "eagle3", "eagle3", target), steps=2)
    assert warnings_of(caplog, engine) == []


@pytest.mark.parametrize(("length", "promised"), [(1, 0.5), (2, 0.75), (3, 0.875), (9, 0.875)])
def test_a_chain_is_promised_what_its_length_allows(length, promised):
    watch = AcceptanceWatch(Card((0.5, 0.5, 0.5)), "eagle", "head")
    assert watch.promised_of[min(length, len(watch.promised_of) - 1)] == promised


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({}, "missing required field `rates`"),
        ({"rates": []}, r"rates must be 1 to 256 numbers from 0 to 1; got \(\)"),
        ({"rates": [0.5, 1.5]}, r"numbers from 0 to 1; got \(0.5, 1.5\)"),
        ({"rates": [0.5] * 257}, "rates must be 1 to 256"),
        ({"rates": 0.7}, "Expected `array`"),
        ({"rate": [0.7]}, "unknown field `rate`"),
    ],
)
def test_a_card_that_cannot_be_is_refused_with_its_file(tmp_path, content, match):
    target = write_target(tmp_path / "target")
    draft = write_draft(tmp_path / "head", "eagle3", target)
    (draft / "acceptance.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match=f"acceptance.json: .*{match}"):
        eagle_engine(target, draft)
