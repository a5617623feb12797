"""Routing policies for simulated replicas: specserve-ray's own, which is called as it is, and others as documented.

`CacheAware` does what smg 1.13 says of its policy cache_aware: a tree of what was sent to each server, never told what
they evicted; the server with the longest match, if that is 0.3 of the prompt; the least loaded one where nothing
matches, or where the matched one has more requests than the mean by 2 standard deviations, at least 4, and than 1.5
times the mean. Its tree is smaller than its limit here and evicts nothing.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from benchmarks.lib.simulated_replica import BLOCK_TOKENS
from specserve_ray.policy import Policy
from specserve_ray.policy_options import PolicyOptions
from specserve_ray.replica_stats import ReplicaStats
from specserve_ray.wire import RoutingKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lib.simulated_replica import Replica, Request

MATCH, RELATIVE, LEAST_MARGIN = 0.3, 1.5, 4


class RoundRobin:
    def __init__(self, num_replicas: int) -> None:
        self.num_replicas, self.last = num_replicas, -1

    def choose(self, request: Request) -> int:
        self.last = (self.last + 1) % self.num_replicas
        return self.last

    def ended(self, request: Request, replica: int) -> None:
        pass

    def tick(self, replicas: Sequence[Replica]) -> None:
        pass


class PowerOfTwo:
    """The one of two at random that has fewer requests under way."""

    def __init__(self, num_replicas: int) -> None:
        self.loads, self.random = [0] * num_replicas, Random(2)

    def choose(self, request: Request) -> int:
        return self.begin(min(self.random.sample(range(len(self.loads)), 2), key=self.loads.__getitem__))

    def begin(self, chosen: int) -> int:
        self.loads[chosen] += 1
        return chosen

    def ended(self, request: Request, replica: int) -> None:
        self.loads[replica] -= 1

    def tick(self, replicas: Sequence[Replica]) -> None:
        pass


class CacheAware(PowerOfTwo):
    def __init__(self, num_replicas: int) -> None:
        super().__init__(num_replicas)
        self.holders: dict[bytes, set[int]] = {}
        self.total = 0

    def choose(self, request: Request) -> int:
        chosen = self.matched(request)
        if chosen is None or self.is_overloaded(chosen):
            chosen = min(range(len(self.loads)), key=self.loads.__getitem__)
        for block in request.chain:
            self.holders.setdefault(block, set()).add(chosen)
        self.total += 1
        return self.begin(chosen)

    def matched(self, request: Request) -> int | None:
        length, found = 0, set[int]()
        for block in request.chain:
            if not (holders := self.holders.get(block)):
                break
            length, found = length + 1, holders
        return min(found, key=self.loads.__getitem__) if length >= MATCH * len(request.chain) else None

    def is_overloaded(self, chosen: int) -> bool:
        mean = self.total / len(self.loads)
        margin = max(LEAST_MARGIN, 2 * mean**0.5)
        return self.loads[chosen] > mean + margin and self.loads[chosen] > RELATIVE * mean

    def ended(self, request: Request, replica: int) -> None:
        super().ended(request, replica)
        self.total -= 1


class Specserve:
    """The policy of specserve-ray. Replicas report once per second."""

    def __init__(self, num_replicas: int, capacity: int) -> None:
        self.policy = Policy(PolicyOptions(block_bytes=64, bytes_per_token=4), Random(3))
        self.reported = Counter[int]()
        self.capacity = capacity
        stats = ReplicaStats(cache_tokens=capacity * BLOCK_TOKENS)
        self.policy.update({str(i): stats for i in range(num_replicas)})

    def choose(self, request: Request) -> int:
        key = RoutingKey(chain=request.chain)
        choice = self.policy.choose(key)
        self.policy.hold(str(id(request)), choice.replica, key)
        return int(choice.replica)

    def ended(self, request: Request, replica: int) -> None:
        self.policy.release(str(id(request)))

    def tick(self, replicas: Sequence[Replica]) -> None:
        for number, replica in enumerate(replicas):
            self.reported[number] += 1
            stats = ReplicaStats(
                number=self.reported[number],
                num_requests=replica.num_requests,
                num_waiting=len(replica.waiting),
                cache_tokens=self.capacity * BLOCK_TOKENS,
            )
            self.policy.report(str(number), stats)
