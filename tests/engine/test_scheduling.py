"""Which request computes what in a step: ranks, budgets, preemption, and the rows left for draft tokens."""

from __future__ import annotations

import pytest
from scheduling_cases import BLOCK, expected_tokens, long_request

from specserve_workbench.testing.drafters import OracleDrafter, WrongDrafter
from specserve_workbench.testing.engines import make_engine, run, run_requests, watch
from specserve_workbench.testing.requests import TOY_VOCAB


class Recorder:
    """An observer that writes down the shape of every step: {request id: (start, committed rows, guesses)}."""

    def __init__(self):
        self.steps = []

    def observe(self, batch, verdict):
        self.steps.append({span.request.id: (span.start, span.known, span.drafted) for span in batch.spans})

    def metrics(self):
        return ()


def recorded(model, drafter=None, **options):
    engine = make_engine(model, drafter, **options).engine
    recorder = Recorder()
    watch(engine, recorder)
    return engine, recorder


def ends(engine, requests):
    order = []
    engine.run(requests, lambda output: output.finish_reason and order.append(output.request_id))
    return order


def test_equal_priorities_are_served_in_order_of_arrival(toy_model):
    engine = make_engine(toy_model, max_num_seqs=1).engine
    assert ends(engine, [long_request(name, max_tokens=3) for name in "bca"]) == ["b", "c", "a"]


def test_a_lower_priority_number_is_served_first(toy_model):
    engine = make_engine(toy_model, max_num_seqs=1).engine
    requests = [long_request(n, max_tokens=3, priority=p) for n, p in (("x", 5), ("y", -1), ("z", 1), ("w", 1))]
    assert ends(engine, requests) == ["y", "z", "w", "x"]


def test_an_urgent_latecomer_passes_those_that_wait_and_not_the_one_that_runs(toy_model):
    engine = make_engine(toy_model, max_num_seqs=1).engine
    for name in "ab":
        engine.add(long_request(name, max_tokens=4))
    engine.step()
    assert ends(engine, [long_request("urgent", max_tokens=4, priority=-1)]) == ["a", "urgent", "b"]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_never_more_requests_run_than_allowed(toy_model, limit):
    engine, recorder = recorded(toy_model, max_num_seqs=limit)
    run_requests(engine, [long_request(str(i), max_tokens=3) for i in range(7)])
    assert max(len(step) for step in recorder.steps) == limit


def test_running_requests_get_their_token_before_any_prompt_gets_rows(toy_model):
    engine, recorder = recorded(toy_model, max_num_batched_tokens=5)
    for name in "ab":
        engine.add(long_request(name, [1]))
    engine.step()
    engine.add(long_request("long", range(1, 14)))
    for _ in range(5):
        engine.step()
    prefill = recorder.steps[1:]
    assert all(step["a"][1] == step["b"][1] == 1 for step in prefill)
    assert [step["long"] for step in prefill] == [(0, 3, 0), (3, 3, 0), (6, 3, 0), (9, 3, 0), (12, 1, 0)]


def test_a_budget_smaller_than_the_running_requests_serves_the_first_ranks(toy_model):
    engine, recorder = recorded(toy_model, max_num_batched_tokens=2)
    requests = [long_request(name, [1, 2], max_tokens=5) for name in "abc"]
    assert run_requests(engine, requests).tokens() == expected_tokens(toy_model, *requests)
    assert max(sum(known for _, known, _ in step.values()) for step in recorder.steps) == 2


def test_without_chunks_a_long_prompt_is_one_span_beyond_the_budget(toy_model):
    engine, recorder = recorded(toy_model, max_num_batched_tokens=16, chunked_prefill=False)
    requests = [long_request("long", range(1, 101), max_tokens=3), long_request("short", [1, 2], max_tokens=3)]
    assert run_requests(engine, requests).tokens() == expected_tokens(toy_model, *requests)
    assert recorder.steps[0] == {"long": (0, 100, 0)}
    assert recorder.steps[1]["short"] == (0, 2, 0)


# --- preemption -----------------------------------------------------------------------------------------


def test_preemption_takes_the_lowest_rank(toy_model):
    engine = make_engine(toy_model, kv_memory=str(9 * BLOCK)).engine
    names = (("old", 0), ("idle", 7), ("young", 0))
    requests = [long_request(name, max_tokens=60, priority=p) for name, p in names]
    live = {}
    for request in requests:
        live[request.request_id] = engine.add(request)
    outcome = run_requests(engine, [])
    assert live["idle"].num_preemptions > 0
    assert live["old"].num_preemptions == 0
    assert outcome.tokens() == expected_tokens(toy_model, *requests)


def test_a_preempted_request_is_recomputed_from_what_the_cache_still_knows(toy_model):
    engine, recorder = recorded(toy_model, kv_memory=str(6 * BLOCK))
    requests = [long_request("a", max_tokens=60), long_request("b", range(40, 60), max_tokens=60)]
    live = [engine.add(request) for request in requests]
    outcome = run_requests(engine, [])
    assert outcome.tokens() == expected_tokens(toy_model, *requests)
    assert outcome.metrics.num_preemptions == sum(r.num_preemptions for r in live) > 0
    restarts = [step["b"][0] for before, step in zip(recorder.steps, recorder.steps[1:], strict=False)
                if "b" in step and "b" not in before]  # fmt: skip
    assert restarts
    assert outcome.outputs["b"].steps[0].cached_tokens == 0, "hits after a preemption are no hits of the prompt"


# --- guesses --------------------------------------------------------------------------------------------


def test_guesses_take_only_what_decode_and_prefill_leave(toy_model):
    requests = [long_request(name, range(1, 5), max_tokens=60) for name in "ab"]
    wide = long_request("wide", range(1, 41), max_tokens=4)
    drafter = OracleDrafter(expected_tokens(toy_model, *requests, wide), 8)
    engine, recorder = recorded(toy_model, drafter, max_num_batched_tokens=12, prefix_cache=False)
    for request in (*requests, wide):
        engine.add(request)
        engine.step()
        engine.step()
    run_requests(engine, [])
    assert all(sum(known + guesses for _, known, guesses in step.values()) <= 12 for step in recorder.steps)
    assert recorder.steps[1] == {"a": (4, 1, 8)}
    assert [guesses for _, _, guesses in recorder.steps[2].values()] == [7, 0]  # beside the prompt of b
    prompt_steps = recorder.steps[4:8]
    assert [step["wide"][:2] for step in prompt_steps] == [(0, 10), (10, 10), (20, 10), (30, 10)]
    assert all(step["a"][1:] == step["b"][1:] == (1, 0) for step in prompt_steps)


@pytest.mark.parametrize("most", [15, 60])
def test_a_guess_never_preempts(toy_model, most):
    """`a` could guess into the block that `b` needs for its 33rd token."""
    requests = [long_request("a", range(1, 17), max_tokens=most), long_request("b", range(1, 31), max_tokens=6)]
    plain = run(toy_model, requests, kv_memory=str(5 * BLOCK), prefix_cache=False)
    drafter = WrongDrafter(plain.tokens(), 32, TOY_VOCAB)
    engine, recorder = recorded(toy_model, drafter, kv_memory=str(5 * BLOCK), prefix_cache=False)
    guessed = run_requests(engine, requests)
    assert guessed.tokens() == plain.tokens()
    assert plain.metrics.num_preemptions == guessed.metrics.num_preemptions == 0
    assert any(guesses for step in recorder.steps for _, _, guesses in step.values())


def test_rejected_guesses_hold_no_blocks(toy_model):
    request = long_request("a", max_tokens=20)
    drafter = WrongDrafter(expected_tokens(toy_model, request), 32, TOY_VOCAB)
    engine = make_engine(toy_model, drafter).engine
    live = engine.add(request)
    while engine.has_work:
        engine.step()
        assert len(live.blocks) <= -(-len(live.tokens) // 16)
        engine.check_integrity()


def test_a_draft_is_cut_to_the_blocks_that_are_free(toy_model):
    request = long_request("a", range(1, 17), max_tokens=15)
    drafter = OracleDrafter(expected_tokens(toy_model, request), 32)
    engine, recorder = recorded(toy_model, drafter, kv_memory=str(2 * BLOCK), prefix_cache=False)
    run_requests(engine, [request])
    # 16 prompt tokens and 15 generated ones fill two blocks but for one slot; the last token needs no slot
    assert recorder.steps == [{"a": (0, 16, 0)}, {"a": (16, 1, 13)}]
