"""The loop of `python -m benchmarks never_slower`: as many requests run all the time, whenever one ends."""

import pytest
from benchmarks.lib.decoding import decode_steadily

from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.requests import toy_request


def requests_of(lengths):
    return [toy_request(str(i), range(1, 9), max_tokens=n, ignore_eos=True) for i, n in enumerate(lengths)]


@pytest.mark.parametrize("lengths", [[1, 40, 40, 40], [40, 1, 1, 40], [1, 1, 40, 40]])
def test_answers_that_end_with_their_first_token_make_room_for_the_next(toy_model, lengths):
    engine = make_engine(toy_model).engine
    decoded = decode_steadily(engine, requests_of(lengths), 2)
    assert decoded.num_tokens >= 2 * 36
    assert decoded.num_outputs == decoded.num_tokens
    assert not engine.requests


def test_steps_with_fewer_requests_are_not_timed(toy_model):
    engine = make_engine(toy_model).engine
    assert decode_steadily(engine, requests_of([10, 40]), 2).num_tokens == 2 * 9
    assert decode_steadily(engine, requests_of([1]), 2).num_tokens == 0
