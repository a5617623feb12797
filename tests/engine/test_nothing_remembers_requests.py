"""What has ended is forgotten: no container grows with the requests that were served, or with their ids.

Some notes are swept when there are many of them, so a few may still be held.
"""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from specserve.batch.request import Request
from specserve_workbench.testing.engines import make_engine
from specserve_workbench.testing.requests import toy_request

NAME = "forget me"
NUM_REQUESTS = 192
MOST_HELD = 2 * 12 + 64
CONTAINERS = (dict, list, tuple, set, frozenset)
CONFIGURATIONS = {
    "one drafter": ("ngram",),
    "several drafters": ("ngram", "repeat", "eagle"),
    "the adaptive planner": ("ngram", "repeat", "eagle", "adaptive"),
    "all": ("ngram", "eagle", "grammar", "lora", "hybrid_attn", "adaptive", "cpu"),
}


def held() -> Counter[str]:
    """Ids of requests in each container, by what refers to it; and requests themselves."""
    ids = {f"{NAME} {i}" for i in range(NUM_REQUESTS)}
    gc.collect()
    found: Counter[str] = Counter()
    counted = {id(ids)}
    for one in gc.get_objects():
        kind = type(one)  # isinstance asks lazy modules, which warn
        if issubclass(kind, Request):
            found["requests"] += one.id in ids
        for each in gc.get_referents(one):  # the collector does not know a dict of strings and numbers
            if issubclass(type(each), CONTAINERS) and id(each) not in counted:
                counted.add(id(each))
                found[f"{type(each).__name__} of {kind.__name__}"] += sum(
                    type(item) is str and item in ids for item in each
                )
    return found


def serve(engine, numbers):
    """Not in the caller's frame, which would keep them. Every other one is aborted: enough of both kinds to be seen."""
    requests = [toy_request(f"{NAME} {i}", [*range(1, 9 + i % 5)] * 4, max_tokens=24, ignore_eos=True) for i in numbers]
    for one in requests:
        engine.add(one)
    for _ in range(6):
        engine.step()
    for one in requests[::2]:
        engine.abort(one.request_id)
    while engine.has_work:
        engine.step()


@pytest.mark.parametrize("kind", CONFIGURATIONS)
def test_no_container_grows_with_the_requests_that_ended(toy_model, kind):
    options = {"eagle": {"model": str(toy_model), "steps": 3}} if "eagle" in CONFIGURATIONS[kind] else {}
    made = make_engine(toy_model, plugins=CONFIGURATIONS[kind], plugin_options=options)
    for wave in range(NUM_REQUESTS // 12):
        serve(made.engine, range(12 * wave, 12 * wave + 12))
    assert made.engine.metrics.num_accepted_tokens > 0
    assert {what: count for what, count in held().items() if count > MOST_HELD} == {}
