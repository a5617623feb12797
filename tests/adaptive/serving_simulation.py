"""A server of known cost, with one or several drafters and requests that come and go; no model.

The engine's own drafting, the planner and the composer run against a clock that only the simulation moves. What a
drafter says is right or wrong by the place in the text, whoever asks and whenever: two runs differ by decisions alone.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import NamedTuple

from specserve.batch.drafts import first, match, parents_of
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.engine import drafting as engine_drafting
from specserve.engine.drafters import OneDrafter, SeveralDrafters
from specserve.engine.drafting import Drafting
from specserve.types import Draft, SpanVerdict, Verdict
from specserve_adaptive import ranked
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.step_costs import StepCosts
from specserve_workbench.testing.requests import toy_request

PROMPT, LENGTH, WRONG, BUDGET = 2, 200, 0, 512
IDLE_COLD = 16
"""Steps after which nothing of a drafter is in the processor's caches."""


class Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        for module in (engine_drafting, ranked):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))


class Machine(NamedTuple):
    """Seconds."""

    passes: dict[int, float]
    """Of the target by rows, ascending; linear between."""
    each: float
    """Of a request in a step."""
    noise: float = 0.05
    outliers: float = 0.01
    """Share of the steps that take three times as long."""
    planning: float = 15e-6
    """Of a step for which the planner is called, and of a choice with what is learned of it."""
    of_request: float = 1.5e-6
    """The same for each request, and for each of its drafts where there are several drafters."""
    unlike: float = 0.08
    """Share by which a step takes longer that drafters drafted for, after one that they did not."""

    def step(self, rows, requests):
        above = min((n for n in self.passes if n >= rows), default=max(self.passes))
        below = max((n for n in self.passes if n < above), default=1)
        slope = (self.passes[above] - self.passes[below]) / max(above - below, 1)
        return self.passes[below] + (rows - below) * slope + self.each * requests


class Costs(NamedTuple):
    """Seconds that a drafter takes."""

    fixed: float
    each: float
    of_pass: float = 0.0
    """Share of both for each level after the first."""
    of_row: float = 0.0
    cold: float = 1.0
    """Factor after a pause."""

    def of(self, requests):
        return self.fixed + self.each * requests


class Text:
    """`chance(drafter, place)`: the mean probability that a draft token there is right, or None without a draft."""

    def __init__(self, seed, chance):
        self.seed, self.chance, self.known = seed, chance, {}

    def at(self, drafter, place):
        """What the drafter states, and whether it is right."""
        key = drafter, place
        if key not in self.known:
            drawn, mean = random.Random(f"{self.seed} {drafter} {place}"), self.chance(drafter, place)
            stated = None if mean is None else drawn.betavariate(2 * mean + 1e-3, 2 * (1 - mean) + 1e-3)
            self.known[key] = stated, stated is not None and drawn.random() < stated
        return self.known[key]


class SimulatedDrafter:
    """A guard as the engine's drafting sees it."""

    reads_logits = proposes_forced = continues_forced = observes_every_step = False
    enabled, needs = True, None

    def __init__(self, name, costs, most, serving):
        self.name, self.costs, self.most, self.serving = name, costs, most, serving
        self.seconds = self.pass_seconds = 0.0
        self.drafted_at, self.read = -IDLE_COLD, {}

    def observe(self, *_):
        self.seconds = 0.0

    def start(self, request):
        pass

    def stop(self, request):
        self.read.pop(request.id, None)

    def propose(self, batch, output, verdict, limits, forced=()):
        self.seconds = self.pass_seconds = 0.0
        asked = [i for i, limit in enumerate(limits) if limit]
        if not asked:
            return [None] * len(limits)
        depth = min(self.most, max(limits))
        rows = 0
        for i in asked:
            request = batch.spans[i].request
            rows += min(len(request.tokens) - self.read.get(request.id, len(request.tokens)), 64)
            self.read[request.id] = len(request.tokens)
        pause = self.serving.num_steps - self.drafted_at
        factor = self.costs.cold if pause >= IDLE_COLD else 1.0
        self.drafted_at = self.serving.num_steps
        noise = self.serving.noise()
        self.pass_seconds = self.costs.of_pass * self.costs.of(len(asked)) * noise
        self.seconds = (
            factor * self.costs.of(len(asked)) * noise + self.costs.of_row * rows + self.pass_seconds * (depth - 1)
        )
        self.serving.spend(self.seconds)
        self.serving.drafted = True
        return [self.draft(batch.spans[i].request, limit) for i, limit in enumerate(limits)]

    def draft(self, request, limit):
        tokens, survival, alive = [], [], 1.0
        text, place = self.serving.texts[request.id], len(request.tokens)
        on_path = True
        for at in range(place, place + min(limit, self.most)):
            stated, right = text.at(self.name, at)
            if stated is None:
                break
            on_path = on_path and right
            alive *= stated
            tokens.append(at + 1 if on_path else WRONG)
            survival.append(alive)
        return Draft(tokens=tuple(tokens), survival=tuple(survival), source=self.name) if tokens else None


class Serving:
    """`count` requests of LENGTH tokens, sampled at temperature 1, at any time, which begin together; `chance(number)`:
    of the text of the request with that number."""

    def __init__(self, monkeypatch, machine, drafters, count, chance, *, seed=0):
        self.clock, self.machine, self.count, self.chance = Clock(monkeypatch), machine, count, chance
        self.random, self.num_steps, self.num_begun, self.seed = random.Random(seed), 0, 0, seed
        rows = [1, 2, 4, 8, 16, 32, 64, 128, 256]
        costs = StepCosts(rows, [machine.step(n, 0) for n in rows])
        self.planner = RankedPlanner(16, costs, "fair", tuple(drafters))
        self.slow_down(self.planner)
        self.guards = [SimulatedDrafter(name, *each, self) for name, each in drafters.items()]
        several = len(self.guards) > 1
        chosen = SeveralDrafters(self.guards, self.planner.composer) if several else OneDrafter(self.guards[0])
        metrics = SimpleNamespace(graph_recording_seconds=0.0, num_preemptions=0)
        self.drafting = Drafting(chosen, self.planner, metrics)
        self.texts, self.requests, self.fresh = {}, [], set()
        self.tokens, self.plain_seconds = 0, 0.0
        self.drafted = self.followed = False
        for _ in range(count):
            self.begin()

    def slow_down(self, planner):
        """Planning takes its time, too."""
        for name in ("limits", "choose"):
            setattr(planner, name, self.taking_time(getattr(planner, name)))

    def taking_time(self, call):
        def called(requests, *others):
            seconds = self.machine.planning + self.machine.of_request * len(requests)
            self.spend(seconds)
            result = call(requests, *others)
            if others:  # a choice
                self.planner.own_seconds += seconds
            return result

        return called

    def noise(self):
        noise = self.machine.noise
        return self.random.uniform(1 - noise, 1 + noise)

    def spend(self, seconds):
        self.clock.now += seconds

    def begin(self):
        name = f"r{self.num_begun}"
        wire = toy_request(name, [1] * PROMPT, max_tokens=LENGTH, temperature=1.0)
        request = Request.admit(wire, seed=0, arrival=0.0, order=self.num_begun, max_len=PROMPT + LENGTH)
        self.texts[name] = Text(f"{self.seed} {name}", self.chance(self.num_begun))
        self.num_begun += 1
        self.requests.append(request)
        self.fresh.add(name)

    # --- a step --------------------------------------------------------------------------------------------------

    def step(self):
        self.num_steps += 1
        chosen = [None] * len(self.requests)
        only_decodes = not self.fresh
        ends = self.requests
        if any(request.draft for request in ends):
            chosen = self.planner.choose(ends, BUDGET, len(ends))
        spans, decided = [], []
        for request, choice in zip(ends, chosen, strict=True):
            draft = first(request.draft, choice) if isinstance(choice, int) else choice
            span = ScheduledSpan.of(
                request, len(request.tokens) - 1, 1, scored=1 + len(draft.tokens if draft else ()), draft=draft
            )
            spans.append(span)
            request.draft = None
            decided.append(self.decide(request, draft))
        rows = len(spans) + sum(span.drafted for span in spans)
        unlike = self.machine.unlike if self.drafted and not self.followed else 0.0
        self.followed = self.drafted
        noise = self.noise() * (3.0 if self.random.random() < self.machine.outliers else 1.0)
        plain = self.machine.step(len(spans), len(spans))
        costs_more = self.machine.step(rows, len(spans)) - plain
        self.plain_seconds += plain * noise
        seconds = noise * (plain * (1 + unlike) + costs_more)
        self.spend(seconds)
        batch = SimpleNamespace(spans=tuple(spans), num_rows=rows + PROMPT * len(self.fresh), only_decodes=only_decodes)
        self.fresh.clear()
        verdict = Verdict(decided)
        self.drafted = False
        ended = [request for request in self.requests if len(request.tokens) >= request.max_len]
        for request in ended:
            request.finish_reason = "length"
            self.drafting.stop(request)
        self.drafting.draft(batch, None, verdict, seconds)
        self.drafting.learn(batch, verdict, seconds)
        for request in ended:
            self.requests.remove(request)
            del self.texts[request.id]
            self.begin()

    def decide(self, request, draft):
        place, left = len(request.tokens), request.max_len - len(request.tokens)
        path = ()
        if draft is not None:
            node, depth = match(draft, range(place + 1, place + 1 + left))
            parents, path = parents_of(draft), []
            while node >= 0 and depth:
                path.append(node)
                node = parents[node]
            path = tuple(reversed(path))
        tokens = tuple(range(place + 1, place + 2 + len(path)))[:left]
        path = path[: max(len(tokens) - 1, 0)] if len(tokens) <= len(path) else path
        request.tokens += tokens
        self.tokens += len(tokens)
        return SpanVerdict(path, tokens, "length" if len(tokens) == left else None, None, None)

    def run(self, steps):
        for _ in range(steps):
            self.step()
        return self

    def reset(self):
        """Count from now on."""
        self.tokens, self.plain_seconds = 0, 0.0
        self.began = self.clock.now, self.num_steps
        return self

    def ratio(self):
        """The speed against plain decoding, which gives a token to each request in a step."""
        seconds, steps = self.clock.now - self.began[0], self.num_steps - self.began[1]
        return (self.tokens / self.count) * (self.plain_seconds / steps) / seconds
