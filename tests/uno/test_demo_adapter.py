"""The demo model's draft adapter: what it drafts behind text that it was not trained on is accepted, and lossless."""

from __future__ import annotations

from functools import cache

import pytest
from uno_engines import uno_engine

from held_out_requests import requests
from specserve.models.locate import locate_model
from specserve_eagle.card import read_card
from specserve_workbench.testing.engines import make_engine, run_requests

LEAST = {0.0: 2.5, 0.8: 2.3}
"""Tokens of a step by temperature, of which two are certain."""


@cache
def drafted(temperature):
    """The tokens, and how many a step gave."""
    result = run_requests(
        uno_engine("demo", "demo-uno", plugins=("cpu", "uno"), dtype="bfloat16"), requests(temperature)
    )
    assert not result.metrics.drafter_faults
    return result.tokens(), 1 + result.metrics.num_accepted_tokens / result.metrics.num_drafts


@pytest.mark.parametrize("temperature", LEAST)
def test_the_tokens_are_those_of_plain_decoding(temperature):
    plain = make_engine("demo", plugins=("cpu",), dtype="bfloat16").engine
    assert drafted(temperature)[0] == run_requests(plain, requests(temperature)).tokens()


@pytest.mark.parametrize("temperature", LEAST)
def test_more_is_accepted_than_what_is_certain(temperature):
    assert drafted(temperature)[1] >= LEAST[temperature]


def test_its_card_promises_what_is_accepted():
    """It is of text, which is harder to draft than what the model writes itself."""
    rates = read_card(locate_model("demo-uno")).rates
    promised, product = 1.0, 1.0
    for rate in rates:
        product *= rate
        promised += product
    assert rates[0] == 1.0, "the first draft token is certain"
    assert 0.8 * promised < drafted(0.0)[1] < 1.3 * promised
