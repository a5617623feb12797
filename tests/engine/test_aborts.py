"""An abort frees a request's blocks at once, whatever the request was doing."""

from __future__ import annotations

from scheduling_cases import BLOCK, expected_tokens, long_request

from specserve_workbench.testing.drafters import OracleDrafter
from specserve_workbench.testing.engines import make_engine, run_requests


def assert_gone(engine, live, num_others=0):
    engine.check_integrity()
    assert all(live not in queue for queue in (engine.scheduler.running, engine.scheduler.waiting))
    assert live.finish_reason == "abort"
    assert len(engine.requests) == num_others
    assert engine.metrics.request_success["abort"] == 1
    if not num_others:
        assert engine.scheduler.pool.num_available == engine.scheduler.pool.num_blocks
        assert not engine.has_work
        assert engine.step() == []


def test_an_abort_while_waiting_leaves_nothing(toy_model):
    engine = make_engine(toy_model).engine
    live = engine.add(long_request("a"))
    engine.abort("a")
    assert_gone(engine, live)


def test_an_abort_between_prompt_chunks_frees_the_blocks_at_once(toy_model):
    engine = make_engine(toy_model, max_num_batched_tokens=8).engine
    live = engine.add(long_request("a", range(1, 41)))
    engine.step()
    engine.step()
    assert (live.computed, len(live.blocks)) == (16, 1)
    engine.abort("a")
    assert_gone(engine, live)


def test_an_abort_while_decoding_frees_the_blocks_and_its_neighbour_goes_on(toy_model):
    requests = [long_request("a"), long_request("b", range(30, 60))]
    engine = make_engine(toy_model).engine
    live, _ = (engine.add(request) for request in requests)
    for _ in range(5):
        engine.step()
    engine.abort("a")
    assert_gone(engine, live, num_others=1)
    rest = run_requests(engine, []).tokens()["b"]
    assert rest == expected_tokens(toy_model, requests[1])["b"][5:]


def test_an_abort_with_drafts_pending_frees_the_blocks_of_the_guesses_too(toy_model):
    request = long_request("a")
    engine = make_engine(toy_model, OracleDrafter(expected_tokens(toy_model, request), 6)).engine
    live = engine.add(request)
    engine.step()
    engine.step()
    assert live.draft is not None
    assert live.num_accepted_draft_tokens == 6
    engine.abort("a")
    assert_gone(engine, live)


def test_an_abort_after_a_preemption_leaves_nothing(toy_model):
    engine = make_engine(toy_model, kv_memory=str(5 * BLOCK)).engine
    first = engine.add(long_request("a", max_tokens=55))
    live = engine.add(long_request("b", range(40, 60), max_tokens=55))
    while not live.num_preemptions:
        engine.step()
    engine.abort("b")
    assert_gone(engine, live, num_others=1)
    run_requests(engine, [])
    assert first.finish_reason == "length"


def test_an_abort_of_an_unknown_request_is_nothing(toy_model):
    engine = make_engine(toy_model).engine
    engine.abort("never seen")
    run_requests(engine, [long_request("a", max_tokens=2)])
    engine.abort("a")
    assert engine.metrics.request_success == {"length": 1}


def test_published_blocks_of_an_aborted_request_still_serve_others(toy_model):
    engine = make_engine(toy_model, max_num_batched_tokens=16).engine
    engine.add(long_request("a", range(1, 41)))
    engine.step()
    engine.abort("a")
    outcome = run_requests(engine, [long_request("b", range(1, 41), max_tokens=4)])
    assert outcome.outputs["b"].steps[0].cached_tokens == 16
    assert outcome.tokens() == expected_tokens(toy_model, long_request("b", range(1, 41), max_tokens=4))
