"""A request that forbids every token from the first one on is refused: its rows would have nothing to choose from."""

from __future__ import annotations

import pytest

from specserve.engine.admission import EngineLimits, check_request
from specserve.errors import RequestError
from specserve_workbench.testing.requests import toy_request

LIMITS = EngineLimits(vocab_size=4, max_model_len=100, cache_tokens=80, eos_token_ids=(3,))


@pytest.mark.parametrize(
    ("param", "params"),
    [
        ("bad_words", {"bad_words": ((0,), (1,), (2,), (3,))}),
        ("min_tokens", {"min_tokens": 1, "stop_token_ids": (0, 1, 2)}),
        ("min_tokens", {"min_tokens": 1, "stop_token_ids": (0, 2), "bad_words": ((1,), (0,))}),
        ("allowed_token_ids", {"allowed_token_ids": (1, 3), "min_tokens": 1, "bad_words": ((1,),)}),
    ],
)
def test_a_request_that_forbids_every_token_is_refused(param, params):
    with pytest.raises(RequestError, match="forbid") as refusal:
        check_request(toy_request("r", [1], **params), LIMITS)
    assert refusal.value.param == param


@pytest.mark.parametrize(
    "params",
    [
        {"stop_token_ids": (0, 1, 2, 3)},
        {"min_tokens": 1, "stop_token_ids": (0, 1, 1)},
        {"min_tokens": 1, "bad_words": ((0,), (1,), (2, 2))},
        {"bad_words": ((0,), (1,), (2,), (2,))},
    ],
)
def test_one_token_that_is_left_is_enough(params):
    check_request(toy_request("r", [1], **params), LIMITS)
