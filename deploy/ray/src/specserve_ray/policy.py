"""Which replica serves a request: pure arithmetic over what is known of replicas, without Ray and without a clock.

In this order, each of them unless the replica is overloaded:
1. the replica that holds what the request reads, such as a stored response;
2. one that has the longest known prefix of the prompt, the least loaded of several;
3. one that runs the request's adapter;
4. the one that served the request's namespace last: its n-gram statistics are there;
5. the less loaded of two at random.

Costs of a choice do not grow with the number of replicas, except those of several that hold a prefix.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from specserve_ray.loads import Loads
from specserve_ray.prefixes import PrefixTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from specserve_ray.policy_options import PolicyOptions
    from specserve_ray.replica_stats import ReplicaStats
    from specserve_ray.wire import RoutingKey

REASONS = ("wanted", "prefix", "adapter", "namespace", "load", "balance")
"""The last one: the replica that would have been chosen was overloaded."""
MAX_NAMESPACES = 10_000
MAX_ATTEMPTS = 10_000
"""Requests whose last replica is remembered, in case they are sent again."""
MAX_COMPARED = 8
"""Replicas with the same claim whose loads are compared."""


class Choice(NamedTuple):
    replica: str
    reason: str
    """One of REASONS."""


class Policy:
    """`random` decides between replicas of which nothing is known."""

    def __init__(self, options: PolicyOptions, random: Random) -> None:
        self.options, self.random = options, random
        self.prefixes, self.loads = PrefixTable(), Loads()
        self.ids: list[str] = []
        self.by_adapter: dict[str, set[str]] = {}
        self.last_of_namespace: OrderedDict[str, str] = OrderedDict()
        self.last_of_request: OrderedDict[str, str] = OrderedDict()
        self.running: dict[str, str] = {}
        """The replicas of requests that have not ended."""
        self.reasons: Counter[str] = Counter()
        """Of all choices, for metrics."""

    # --- what is known of replicas ------------------------------------------------------------------

    def update(self, replicas: Mapping[str, ReplicaStats]) -> None:
        """All that serve, with what each has reported last."""
        for gone in self.loads.known - replicas.keys():
            self.drop(gone)
        for id, stats in replicas.items():
            self.report(id, stats)
        self.ids = list(replicas)

    def report(self, id: str, stats: ReplicaStats) -> None:
        before = self.loads.stats_of(id)
        if before == stats and id in self.loads.known:
            return  # another replica has reported
        for adapter in before.adapters:
            self.forget_adapter(adapter, id)
        for adapter in stats.adapters:
            self.by_adapter.setdefault(adapter, set()).add(id)
        self.loads.report(id, stats)

    def drop(self, id: str) -> None:
        for adapter in self.loads.stats_of(id).adapters:
            self.forget_adapter(adapter, id)
        self.loads.drop(id)
        self.prefixes.drop(id)
        if id in self.ids:
            self.ids.remove(id)

    def forget_adapter(self, adapter: str, id: str) -> None:
        users = self.by_adapter[adapter]
        users.discard(id)
        if not users:
            del self.by_adapter[adapter]

    # --- requests -----------------------------------------------------------------------------------

    def choose(self, key: RoutingKey) -> Choice:
        """`update` must have told of a replica before."""
        choice = self.best_choice(key)
        self.reasons[choice.reason] += 1
        return choice

    def best_choice(self, key: RoutingKey) -> Choice:
        other = self.by_load(key)
        if key.wanted in self.loads.known:
            return Choice(key.wanted, "wanted")
        for reason, candidates in self.claims(key):
            allowed = [id for id in candidates if not self.is_avoided(id, key)]
            if allowed:
                best = self.loads.least(allowed)
                return Choice(best, reason) if not self.is_overloaded(best, other) else Choice(other, "balance")
        return Choice(other, "load")

    def claims(self, key: RoutingKey) -> Iterable[tuple[str, list[str]]]:
        """The best reason first."""
        match = self.prefixes.longest(key.chain)
        if match.num_blocks >= self.options.min_match * len(key.chain):
            yield "prefix", list(islice(match.replicas, MAX_COMPARED))
        yield "adapter", list(islice(self.by_adapter.get(key.adapter, ()), MAX_COMPARED))
        last = self.last_of_namespace.get(key.namespace)
        if last is not None and last in self.loads.known:
            yield "namespace", [last]

    def by_load(self, key: RoutingKey) -> str:
        """Power of two choices."""
        sample = self.random.sample(self.ids, min(2, len(self.ids)))
        return self.loads.least([id for id in sample if not self.is_avoided(id, key)] or sample)

    def is_avoided(self, id: str, key: RoutingKey) -> bool:
        """It has failed this request."""
        return key.attempt > 0 and self.last_of_request.get(key.id) == id

    def is_overloaded(self, id: str, other: str) -> bool:
        most = self.options.max_imbalance + self.options.max_load_ratio * self.loads.load(other)
        return self.loads.load(id) > most

    def hold(self, request: str, id: str, key: RoutingKey) -> None:
        """The replica is to serve the request of this id, in place of the one before: later requests that share
        something with it may follow."""
        if self.running.get(request) == id:
            return
        self.release(request)
        self.running[request] = id
        self.loads.began(id)
        self.prefixes.add(id, key.chain, self.capacity(id))
        if key.namespace:
            remember(self.last_of_namespace, key.namespace, id, MAX_NAMESPACES)
        if key.id:
            remember(self.last_of_request, key.id, id, MAX_ATTEMPTS)

    def move(self, request: str, id: str, key: RoutingKey) -> None:
        """As `hold`, unless the request has ended meanwhile."""
        if request in self.running:
            self.hold(request, id, key)

    def release(self, request: str) -> None:
        """It has ended, or was never sent."""
        id = self.running.pop(request, None)
        if id is not None:
            self.loads.ended(id)

    def capacity(self, id: str) -> int:
        """Blocks of text that fit in the replica's KV cache, within the share of one replica of all memory."""
        share = self.options.max_blocks // max(1, len(self.ids))
        tokens = self.loads.stats_of(id).cache_tokens
        return min(share, tokens * self.options.bytes_per_token // self.options.block_bytes)


def remember(table: OrderedDict[str, str], name: str, id: str, most: int) -> None:
    table[name] = id
    table.move_to_end(name)
    if len(table) > most:
        table.popitem(last=False)
