"""The demo model's draft models: what they draft for text that they were not trained on is accepted, and lossless."""

from __future__ import annotations

from functools import cache

import pytest

from covering import covering
from held_out_requests import requests
from specserve.models.locate import locate_model
from specserve_eagle.card import read_card
from specserve_workbench.testing.engines import make_engine, run_requests, verify_everything

LEAST = {"demo-eagle3": (1.9, 1.6), "demo-mtp": (1.7, 1.5), "demo-eagle": (1.5, 1.3), "demo-standalone": (1.5, 1.4)}
LEAST["demo-dspark"] = (1.7, 1.5)
"""Mean acceptance length of drafts of three tokens, greedy and at temperature 0.8. Greedy text of a small model repeats
itself, which is easier to draft."""


@cache
def plain(temperature, weights="auto"):
    settings = {"cpu": {"weights": weights}}
    engine = make_engine("demo", plugins=("cpu",), plugin_options=settings, dtype="bfloat16").engine
    return run_requests(engine, requests(temperature)).tokens()


@cache
def drafted(head, temperature, weights="auto", *, of_head="auto"):
    """The tokens, and the mean acceptance length."""
    settings = {"eagle": {"model": head, "steps": 3, "weights": of_head}, "cpu": {"weights": weights}}
    engine = make_engine("demo", plugins=("cpu", "eagle"), plugin_options=settings, dtype="bfloat16").engine
    verify_everything(engine)
    result = run_requests(engine, requests(temperature))
    assert not result.metrics.drafter_faults
    return result.tokens(), 1 + result.metrics.num_accepted_tokens / result.metrics.num_drafts


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("head", LEAST)
def test_the_tokens_are_those_of_plain_decoding(head, temperature):
    assert drafted(head, temperature)[0] == plain(temperature)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("head", LEAST)
def test_drafts_are_accepted(head, temperature):
    assert drafted(head, temperature)[1] >= LEAST[head][temperature > 0]


@pytest.mark.parametrize("head", LEAST)
def test_a_card_promises_what_is_accepted(head):
    """Cards are of text, which is harder to draft than what the model writes itself; see demo/README.md."""
    first, second, third = read_card(locate_model(head)).rates[:3]
    promised = 1 + first * (1 + second * (1 + third))
    assert 0.7 * promised < drafted(head, 0.0)[1] < 1.6 * promised


@covering(weights=["int8", "int8-g64", "int4"], temperature=[0.0, 0.8])
def test_weights_of_few_bits_lose_no_drafts(weights, temperature):
    tokens, length = drafted("demo-eagle3", temperature, weights)
    assert tokens == plain(temperature, weights)
    assert length >= LEAST["demo-eagle3"][temperature > 0]


@pytest.mark.parametrize("head", ["demo-eagle3", "demo-dspark", "demo-standalone"])
def test_a_head_of_rounded_weights_is_accepted_as_often(head):
    tokens, length = drafted(head, 0.0, of_head="int8")
    assert tokens == plain(0.0)
    assert length == pytest.approx(drafted(head, 0.0)[1], rel=0.03)
