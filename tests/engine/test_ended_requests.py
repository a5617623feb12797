"""Whoever listens is told of every request that ends: once, with what happened to it and when."""

from __future__ import annotations

import pytest
from running_engine import collect, endless, started, until
from scheduling_cases import BLOCK, long_request

from specserve_workbench.testing.engines import make_engine, run_requests


def test_every_request_that_ends_is_told_once_however_it_ended(toy_model):
    engine, ended = make_engine(toy_model).engine, []
    engine.listeners.append(ended.append)
    live = {name: engine.add(long_request(name, max_tokens=3)) for name in ("whole", "aborted")}
    engine.step()
    engine.abort("aborted")
    assert ended == [live["aborted"]]
    run_requests(engine, [])
    assert ended == [live["aborted"], live["whole"]]
    assert [request.finish_reason for request in ended] == ["abort", "length"]


def test_times_of_preemptions_lie_between_the_first_token_and_the_last(toy_model):
    engine = make_engine(toy_model, kv_memory=str(5 * BLOCK)).engine
    prompts = {"a": range(1, 21), "b": range(40, 60)}
    live = [engine.add(long_request(name, prompt, max_tokens=55)) for name, prompt in prompts.items()]
    run_requests(engine, [])
    (request,) = [request for request in live if request.num_preemptions]
    times = [request.first_token, *request.preempted_at, request.last_token]
    assert len(times) == 2 + engine.metrics.num_preemptions
    assert times == sorted(times)


@pytest.mark.parametrize(("budget", "steps"), [(8, 5), (16, 3), (64, 1)])
def test_steps_of_the_prompt_are_counted_to_the_first_token(toy_model, budget, steps):
    engine = make_engine(toy_model, max_num_batched_tokens=budget).engine
    request = engine.add(long_request("a", range(1, 41)))
    run_requests(engine, [])
    assert request.num_prompt_steps == steps


async def test_a_listener_that_raises_costs_no_request_anything(toy_model, caplog):
    heard = []

    def ended(request):
        heard.append(request.id)
        raise ValueError("of the listener")

    async with started(toy_model) as engine:
        engine.listen(ended)
        assert (await collect(engine, long_request("a", max_tokens=3)))[-1].finish_reason == "length"
        stream = engine.submit(endless("b"))
        await anext(stream)
        await stream.aclose()
        await until(lambda: len(heard) == 2)
        assert (await collect(engine, long_request("c", max_tokens=3)))[-1].finish_reason == "length"
    assert heard == ["a", "b", "c"]
    assert caplog.text.count("ValueError: of the listener") == 3
