"""Output throughput and acceptance length of steady decoding, measured in slices so that engines can alternate.

Prefill is not timed: the measurement begins when every request has its first token.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.lib.workload import greedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from specserve.engine.engine import Engine
    from specserve.types import GenerateRequest

SLICE_STEPS = 20
"""Steps of one engine before the next engine runs; the first one is not timed."""
PROMPT_LEN, NUM_TOKENS = 64, 100
"""Of requests on models of random weights."""


class Decoded(NamedTuple):
    """Sums over the timed steps."""

    seconds: float = 0.0
    num_tokens: int = 0
    num_outputs: int = 0
    """One per request and step."""

    def plus(self, other: Decoded) -> Decoded:
        return Decoded(
            self.seconds + other.seconds, self.num_tokens + other.num_tokens, self.num_outputs + other.num_outputs
        )

    @property
    def throughput(self) -> float:
        return self.num_tokens / self.seconds

    @property
    def mean_acceptance_length(self) -> float:
        return self.num_tokens / self.num_outputs


def decode_in_slices(engine: Engine, requests: list[GenerateRequest]) -> Iterator[Decoded]:
    """Run all requests concurrently to their end. The first item is empty and comes when prefill is done."""
    start_all(engine, requests)
    yield Decoded()
    while engine.has_work:
        engine.step()  # brings the weights back into the CPU caches
        yield timed_steps(engine, SLICE_STEPS - 1)


def decode_while_all_run(engine: Engine, requests: list[GenerateRequest]) -> Iterator[Decoded]:
    """The same up to the step in which the first request ends; the others are then aborted. So all decode together in
    all that is timed, however different their speeds are."""
    start_all(engine, requests)
    yield Decoded()
    while len(engine.requests) == len(requests):
        engine.step()
        yield timed_steps(engine, SLICE_STEPS - 1, least_running=len(requests))
    abort_all(engine)


def decode_steadily(engine: Engine, requests: Sequence[GenerateRequest], at_once: int) -> Decoded:
    """As many requests at once, and the next one where one has ended, as a busy server has them. Steps with prompts are
    not timed. Ends when fewer are left; these are aborted."""
    start_all(engine, requests[:at_once])
    waiting, decoded = list(requests[at_once:]), Decoded()
    while len(engine.requests) + len(waiting) >= at_once:
        while len(engine.requests) < at_once:  # from the first step on: a short answer may have ended by now
            engine.check(waiting[0])
            engine.add(waiting.pop(0))
        prompts = engine.metrics.prompt_tokens_computed
        step = timed_steps(engine, 1)
        if engine.metrics.prompt_tokens_computed == prompts:
            decoded = decoded.plus(step)
    abort_all(engine)
    return decoded


def start_all(engine: Engine, requests: Sequence[GenerateRequest]) -> None:
    """Until each has its first token."""
    for one in requests:
        engine.check(one)
        engine.add(one)
    decoding: set[str] = set()
    while len(decoding) < len(requests):
        decoding |= {output.request_id for output in engine.step()}


def abort_all(engine: Engine) -> None:
    for request_id in list(engine.requests):
        engine.abort(request_id)


def timed_steps(engine: Engine, max_steps: int, least_running: int = 1) -> Decoded:
    """As long as `least_running` requests or more run."""
    num_tokens = num_outputs = num_steps = 0
    began = time.perf_counter()
    while num_steps < max_steps and len(engine.requests) >= least_running:
        outputs = engine.step()
        num_tokens += sum(len(output.tokens) for output in outputs)
        num_outputs += len(outputs)
        num_steps += 1
    return Decoded(time.perf_counter() - began, num_tokens, num_outputs)


def random_decoding(engine: Engine, count: int) -> Callable[[], float]:
    """Tokens per second of some steps of so many requests, from prompts that differ."""

    def measure() -> float:
        prompts = [tuple((7 * n + 13 * at) % 300 for at in range(PROMPT_LEN)) for n in range(count)]
        start_all(engine, [greedy(f"request-{n}", prompt, NUM_TOKENS) for n, prompt in enumerate(prompts)])
        timed_steps(engine, 2)
        decoded = timed_steps(engine, SLICE_STEPS)
        abort_all(engine)
        return decoded.throughput

    return measure
