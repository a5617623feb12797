"""How busy each replica is: what it has reported, and what this router has sent since then."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve_ray.replica_stats import ReplicaStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Set

NOT_REPORTED = ReplicaStats()


@dataclass(slots=True)
class ReplicaLoad:
    stats: ReplicaStats = field(default=NOT_REPORTED)
    num_running: int = 0
    """Requests that this router has sent and that have not ended."""
    num_running_then: int = 0
    """As many were running at the report."""

    @property
    def load(self) -> float:
        """In requests, at least those of this router. Those that wait count twice; the share of KV blocks in use
        decides between equals."""
        since = self.num_running - self.num_running_then
        return max(self.num_running, self.stats.num_requests + since) + self.stats.num_waiting + self.stats.kv_usage


class Loads:
    def __init__(self) -> None:
        self.replicas: dict[str, ReplicaLoad] = {}

    @property
    def known(self) -> Set[str]:
        return self.replicas.keys()

    def stats_of(self, id: str) -> ReplicaStats:
        found = self.replicas.get(id)
        return NOT_REPORTED if found is None else found.stats

    def report(self, id: str, stats: ReplicaStats) -> None:
        found = self.replicas.setdefault(id, ReplicaLoad())
        found.stats, found.num_running_then = stats, found.num_running

    def drop(self, id: str) -> None:
        self.replicas.pop(id, None)

    def load(self, id: str) -> float:
        found = self.replicas.get(id)
        return 0.0 if found is None else found.load

    def least(self, ids: Iterable[str]) -> str:
        """The first of those with the least load."""
        return min(ids, key=self.load)

    def began(self, id: str) -> None:
        if id in self.replicas:
            self.replicas[id].num_running += 1

    def ended(self, id: str) -> None:
        found = self.replicas.get(id)
        if found is not None and found.num_running:
            found.num_running -= 1
