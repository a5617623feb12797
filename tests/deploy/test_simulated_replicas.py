"""The simulation behind `python -m benchmarks routing` computes what it says."""

from __future__ import annotations

import math
from random import Random

import pytest
from benchmarks.lib.simulated_cluster import Cluster, Workload, simulate
from benchmarks.lib.simulated_replica import BLOCK_TOKENS, TOKEN_BUDGET, Replica, Request, StepCosts
from benchmarks.lib.simulated_routers import CacheAware, PowerOfTwo, RoundRobin, Specserve

COSTS = StepCosts(base=1.0, per_request=0.1, per_prompt_token=0.01)
WORKLOAD = Workload(num_sessions=80, sessions_per_second=0.01, num_applications=4, system_tokens=256, mean_pause=30.0)
CAPACITY = 400


def request_of(num_blocks: int, num_answer: int, name: str = "a") -> Request:
    return Request(tuple(f"{name}{i}".encode() for i in range(num_blocks)), num_answer, 0.0, 0)


def run_to_its_end(replica: Replica) -> list[Request]:
    ended = []
    while replica.next_event != math.inf:
        ended += replica.finish_steps()
    return ended


def test_a_request_takes_its_prompts_steps_and_a_step_for_each_token() -> None:
    replica = Replica(COSTS, CAPACITY)
    replica.arrive(request_of(2 * TOKEN_BUDGET // BLOCK_TOKENS, 5), 0.0)
    (request,) = run_to_its_end(replica)
    assert request.first_token == pytest.approx(2 * COSTS.step(0, TOKEN_BUDGET))
    assert request.end - request.first_token == pytest.approx(4 * COSTS.step(1, 0))


def test_a_prompt_that_was_computed_is_found_until_it_is_evicted() -> None:
    replica = Replica(COSTS, 10)
    found = []
    for name in ("a", "a", "b", "a"):
        request = request_of(8, 1, name)
        replica.arrive(request, 0.0)
        run_to_its_end(replica)
        found.append(request.cached_blocks)
    assert found == [0, 8, 0, 2]


def test_a_request_that_arrives_between_two_steps_joins_at_the_next() -> None:
    replica = Replica(COSTS, CAPACITY)
    replica.arrive(request_of(1, 100, "a"), 0.0)
    replica.finish_steps()
    began = replica.began
    replica.arrive(request_of(1, 100, "b"), began + 3.5 * COSTS.step(1, 0))
    assert replica.next_event == pytest.approx(began + 4 * COSTS.step(1, 0))
    first, second = sorted(run_to_its_end(replica), key=lambda request: request.end)
    assert first.end < second.end


@pytest.mark.parametrize("router", [RoundRobin, PowerOfTwo, CacheAware, lambda n: Specserve(n, CAPACITY)])
def test_every_turn_of_every_conversation_ends(router: object) -> None:
    cluster = Cluster([Replica(COSTS, CAPACITY) for _ in range(4)], router(4), WORKLOAD, Random(1))  # type: ignore[operator]
    outcome = cluster.run()
    assert not cluster.sessions
    assert not cluster.place
    assert {request.session for request in cluster.ended} == set(range(WORKLOAD.num_sessions))
    assert all(request.arrival < request.first_token <= request.end for request in cluster.ended)
    assert all(not replica.num_requests and len(replica.blocks) <= CAPACITY for replica in cluster.replicas)
    assert 0 < outcome.hit_rate < 1


def test_routers_that_know_prefixes_find_more_of_them() -> None:
    def hits(router: object) -> float:
        return simulate(COSTS, 4, CAPACITY, router, WORKLOAD).hit_rate  # type: ignore[arg-type]

    assert hits(Specserve(4, CAPACITY)) > 1.15 * hits(RoundRobin(4))
    assert hits(CacheAware(4)) > 1.15 * hits(PowerOfTwo(4))
