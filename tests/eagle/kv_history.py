"""A random history of requests: chunks, draft tokens that are partly wrong, limits that come and go, preemption,
aborts, requests that raise, resets of the prefix cache, turns that continue earlier ones. Snapshots of the draft
layers' keys and values along the way."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from eagle_engines import (
    DraftKV,
    draft_kv,
    each_fresh_draft_kv,
    eagle_engine,
    is_by_slot,
    memory_for,
    runtime_of,
    with_planner,
)

from specserve.batch.admitted import assign
from specserve.batch.drafts import depths_of, parents_of
from specserve.faults import RequestFault
from specserve.speculation.fixed_width import FixedWidthPlanner
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import toy_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from specserve.batch.request import Request
    from specserve.batch.span import ScheduledSpan
    from specserve.engine.engine import Engine
    from specserve.engine.isolation import Computed
    from specserve.types import Draft, GenerateRequest

NUM_REQUESTS, MAX_TOKENS = 10, 28


class Fickle(FixedWidthPlanner):
    """Asks for drafts now and then, and verifies tokens of which about 0.7 are right, whatever was drafted."""

    def __init__(self, answers: dict[str, list[int]], seed: int) -> None:
        super().__init__(8)
        self.answers, self.random = answers, random.Random(seed)
        self.wants: dict[str, bool] = {}

    def limits(self, requests):
        wanted = []
        for request, most in zip(requests, super().limits(requests), strict=True):
            if self.random.random() < 0.3:
                self.wants[request.id] = self.random.random() < 0.5
            wanted.append(self.random.randint(0, most) if self.wants.get(request.id, True) else 0)
        return wanted

    def idle_steps(self):
        """Of some of these the drafter is told afterwards."""
        return self.random.choice((0, 0, 3, 50))

    def choose(self, requests, budget, base_rows):
        return super().choose(self.with_other_tokens(requests), budget, base_rows)

    def with_other_tokens(self, requests):
        for request in requests:
            if request.draft is not None:
                assign(request, "draft", self.other(request.draft, self.answers[request.id][len(request.tokens) :]))
        return requests

    def other(self, draft: Draft, future: list[int]) -> Draft:
        """A draft of the same shape. One child of each node may be right."""
        tokens: list[int] = []
        has_right_child: set[int] = set()
        for node, (depth, parent) in enumerate(zip(depths_of(draft), parents_of(draft), strict=True)):
            right = future[depth - 1] if depth <= len(future) else 0  # a stop may come before
            is_right = parent not in has_right_child and self.random.random() < 0.7
            has_right_child |= {parent} if is_right else set()
            tokens.append(right if is_right else (right + 1 + node) % 60)
        return msgspec.structs.replace(draft, tokens=tuple(tokens))


def random_prompts(seed: int) -> dict[str, list[int]]:
    """Some share their beginning."""
    rng = random.Random(seed)
    shared = [rng.randrange(60) for _ in range(33)]
    found = {}
    for i in range(NUM_REQUESTS):
        own = [rng.randrange(60) for _ in range(rng.choice((1, 2, 15, 31, 32, 50)))]
        found[f"{i}"] = shared[: rng.choice((16, 33))] + own if i % 2 else own
    return found


def two_turns(target: Path, seed: int, **options: Any) -> dict[str, list[int]]:
    """All tokens of requests that come one after the other; every second one continues one before it."""

    def answers(prompts: dict[str, list[int]]) -> dict[str, list[int]]:
        requests = [request_of(name, prompt) for name, prompt in prompts.items()]
        return {name: prompts[name] + tokens for name, tokens in run(target, requests, **options).tokens().items()}

    first = answers(random_prompts(seed))
    second = answers({f"{name}, again": [*tokens, 7] for name, tokens in first.items()})
    return {name: tokens for turn in zip(first.items(), second.items(), strict=True) for name, tokens in turn}


def request_of(name: str, prompt: Sequence[int]) -> GenerateRequest:
    """Every third one has a logits processor: passes are then computed piece by piece."""
    processed = {"min_tokens": 9, "repetition_penalty": 1.1} if int(name[0]) % 3 == 0 else {}
    return toy_request(name, prompt, max_tokens=MAX_TOKENS, ignore_eos=True, **processed)


class Snapshot(NamedTuple):
    request: str
    kv: DraftKV


class History:
    """Runs requests whose tokens are known: `answers` holds all tokens of each, prompt included."""

    def __init__(self, engine: Engine, answers: dict[str, list[int]], seed: int) -> None:
        self.engine, self.answers, self.random = (
            with_planner(engine, Fickle(answers, seed)),
            answers,
            random.Random(seed),
        )
        self.resets, self.faults = random.Random(seed), random.Random(seed)
        self.raising: set[str] = set()
        engine.isolation.compute = self.raise_for(engine.isolation.compute)
        self.requests: list[Request] = []
        self.snapshots: list[Snapshot] = []

    def run(self) -> History:
        waiting, engine = [*self.answers], self.engine
        while waiting or engine.has_work:
            if waiting and self.random.random() < 0.3:
                name = waiting.pop(0)
                self.requests.append(engine.add(request_of(name, self.answers[name][:-MAX_TOKENS])))
            engine.step()
            engine.check_integrity()
            if engine.requests and self.random.random() < 0.02:
                engine.abort(self.random.choice(list(engine.requests)))
            if engine.requests and self.faults.random() < 0.015:
                self.raising.add(self.faults.choice(list(engine.requests)))
            if self.resets.random() < 0.02:
                engine.reset_prefix_cache()
            if self.random.random() < 0.4:
                self.look()
        engine.add(toy_request("last", [0], max_tokens=2, ignore_eos=True))  # what a request that raised left is fed
        self.answers["last"] = [0, 0, 0]
        while engine.has_work:
            engine.step()
        return self

    def raise_for(self, compute: Callable[[Sequence[ScheduledSpan]], Computed]) -> Callable[..., Computed]:
        """`compute`, which raises for some requests."""

        def raising(spans: Sequence[ScheduledSpan]) -> Computed:
            for span in spans:
                if span.request.id in self.raising:
                    raise RequestFault(span.request.id, "a part of its step", RuntimeError("a fault of a test"))
            return compute(spans)

        return raising

    def look(self) -> None:
        for name, sequence in runtime_of(self.engine).sequences.items():
            if sequence.is_complete and sequence.num_computed == sequence.request.computed > 0:
                self.snapshots.append(Snapshot(name, draft_kv(self.engine, sequence)))

    def published(self) -> Iterator[tuple[Request, int, int]]:
        """(request, index, block) of every block that the prefix cache knows."""
        by_hash = {h: (request, i) for request in self.requests for i, h in enumerate(request.hashes)}
        for h, block in self.engine.scheduler.pool.by_hash.items():
            if h in by_hash:  # else the last request's
                yield *by_hash[h], block


def assert_follows_the_truth(target: Path, draft: Path, seed: int, *, num_tokens: int = 215, **options: Any) -> History:
    """`num_tokens`: of all requests together that fit in the cache."""
    options |= {"max_num_seqs": 4}
    options["kv_memory"] = memory_for(num_tokens // options["block_size"], target, draft, **options)
    answers = two_turns(target, seed, **{name: options[name] for name in ("dtype", "default_plugins")})
    engine = eagle_engine(target, draft, **options)
    history = History(engine, answers, seed).run()
    assert not engine.metrics.drafter_faults
    fresh = each_fresh_draft_kv(target, draft, answers, **options)
    for name, kv in history.snapshots:
        count = len(kv.tokens)
        assert torch.equal(kv.data, fresh[name].data[:, :, :count]), (name, count)
        if kv.states is not None:
            assert torch.equal(kv.states, fresh[name].states[: len(kv.states)]), (name, count)
    assert_published_blocks_are_complete(history, fresh)
    return history


def assert_published_blocks_are_complete(history: History, fresh: dict[str, DraftKV]) -> None:
    runtime, size = runtime_of(history.engine), history.engine.scheduler.block_size
    pool = history.engine.scheduler.pool
    for request, index, block in history.published():
        if request.finish_reason == "error" and index >= len(pool.match(request.hashes)):
            continue  # the cache lacks a block before it: nobody is given this one
        known = runtime.draft_blocks.hash_of.get(block)
        assert known == request.hashes[index]
        data = runtime.resources.attention.cache.data[:, :, block * size : (block + 1) * size]
        expected = fresh[request.id].data[:, :, index * size : (index + 1) * size]
        first = int(runtime.layers.reads_hidden and index == 0)  # position 0 has no key
        if first and not is_by_slot(history.engine):
            continue
        assert torch.equal(data[:, :, first:], expected[:, :, first:]), (request.id, index)
        if runtime.draft_blocks.states is not None:
            assert torch.equal(runtime.draft_blocks.states[block], fresh[request.id].states[index])


def assert_eventful(history: History) -> None:
    metrics = history.engine.metrics
    assert metrics.num_preemptions > 0
    assert metrics.prefix_cache_hits > 0
    assert metrics.request_success["abort"] > 0
    assert metrics.request_success["error"] > 0
    assert 0 < metrics.num_accepted_tokens < metrics.num_draft_tokens
    assert len(history.snapshots) > 50
