"""Replicas behind a router, event by event: conversations arrive, each turn is sent once the answer before was read."""

from __future__ import annotations

import heapq
import math
import time
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from benchmarks.lib.simulated_replica import BLOCK_TOKENS, Replica, Request
from specserve_bench.figures.distribution import percentile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.lib.simulated_replica import StepCosts


class Router(Protocol):
    """Replicas are numbers."""

    def choose(self, request: Request) -> int: ...

    def ended(self, request: Request, replica: int) -> None: ...

    def tick(self, replicas: Sequence[Replica]) -> None:
        """Once per second: what replicas report."""
        ...


class Workload(NamedTuple):
    """Conversations of a few applications, whose system prompts begin them. Lengths are in tokens, times in seconds;
    turns, lengths and pauses are exponential around the means."""

    num_sessions: int
    sessions_per_second: float
    num_applications: int
    system_tokens: int = 1024
    mean_turns: float = 6.0
    mean_turn_tokens: float = 128.0
    mean_answer_tokens: float = 128.0
    mean_pause: float = 3.0


@dataclass(slots=True, eq=False)
class Session:
    number: int
    chain: list[bytes]
    turns_left: int


class Outcome(NamedTuple):
    hit_rate: float
    """Prompt tokens that prefix caches had, of all."""
    first_token_p50: float
    first_token_p99: float
    request_p99: float
    seconds_per_choice: float
    """Of real time."""


@dataclass(slots=True)
class Cluster:
    replicas: list[Replica]
    router: Router
    workload: Workload
    random: Random
    ended: list[Request] = field(default_factory=list)
    choosing: float = 0.0
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    numbers: count[int] = field(default_factory=count)
    sessions: dict[int, Session] = field(default_factory=dict)
    place: dict[Request, int] = field(default_factory=dict)

    def run(self) -> Outcome:
        now = 0.0
        for number in range(self.workload.num_sessions):
            now += self.random.expovariate(self.workload.sessions_per_second)
            self.push(now, "turn", number)
        self.push(1.0, "tick", 0)
        while self.events:
            now, _, kind, number = heapq.heappop(self.events)
            if kind == "turn":
                self.take_turn(number, now)
            elif kind == "steps":
                self.finish_steps(number, now)
            elif self.events:
                self.router.tick(self.replicas)
                self.push(now + 1.0, "tick", 0)
        return self.outcome()

    def push(self, at: float, kind: str, number: int) -> None:
        heapq.heappush(self.events, (at, next(self.numbers), kind, number))

    def take_turn(self, number: int, now: float) -> None:
        session = self.sessions.get(number) or self.begin(number)
        self.extend(session, self.workload.mean_turn_tokens)
        answer = 1 + int(self.random.expovariate(1 / self.workload.mean_answer_tokens))
        request = Request(tuple(session.chain), answer, now, number)
        began = time.perf_counter()
        chosen = self.router.choose(request)
        self.choosing += time.perf_counter() - began
        self.place[request] = chosen
        replica, before = self.replicas[chosen], self.replicas[chosen].next_event
        replica.arrive(request, now)
        if replica.next_event != before:
            self.push(replica.next_event, "steps", chosen)

    def begin(self, number: int) -> Session:
        """Applications are used by Zipf's law."""
        application = int(self.workload.num_applications ** self.random.random()) - 1
        chain = [b"system %d %d" % (application, i) for i in range(self.workload.system_tokens // BLOCK_TOKENS)]
        turns = 1 + int(self.random.expovariate(1 / (self.workload.mean_turns - 1)))
        self.sessions[number] = Session(number, chain, turns)
        return self.sessions[number]

    def extend(self, session: Session, mean_tokens: float) -> None:
        for _ in range(1 + int(self.random.expovariate(BLOCK_TOKENS / mean_tokens))):
            session.chain.append(b"%d %d" % (session.number, len(session.chain)))

    def finish_steps(self, chosen: int, now: float) -> None:
        replica = self.replicas[chosen]
        if replica.next_event != now:
            return  # of steps that an arrival has shortened
        for request in replica.finish_steps():
            self.ended.append(request)
            self.router.ended(request, self.place.pop(request))
            session = self.sessions[request.session]
            session.turns_left -= 1
            if session.turns_left:
                self.extend(session, float(request.num_answer))
                self.push(now + self.random.expovariate(1 / self.workload.mean_pause), "turn", session.number)
            else:
                del self.sessions[session.number]
        if replica.next_event != math.inf:
            self.push(replica.next_event, "steps", chosen)

    def outcome(self) -> Outcome:
        first = [request.first_token - request.arrival for request in self.ended]
        whole = [request.end - request.arrival for request in self.ended]
        looked_up = sum(len(request.chain) for request in self.ended)
        return Outcome(
            sum(request.cached_blocks for request in self.ended) / looked_up,
            percentile(first, 50),
            percentile(first, 99),
            percentile(whole, 99),
            self.choosing / len(self.ended),
        )


def simulate(costs: StepCosts, num_replicas: int, capacity: int, router: Router, workload: Workload) -> Outcome:
    replicas = [Replica(costs, capacity) for _ in range(num_replicas)]
    return Cluster(replicas, router, workload, Random(1)).run()
