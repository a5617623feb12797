"""A machine of known cost, texts of known predictability and a drafter that states what it believes; no model."""

from __future__ import annotations

import random
from types import SimpleNamespace

from specserve.batch.drafts import first
from specserve.batch.request import Request
from specserve.batch.span import ScheduledSpan
from specserve.types import Draft, SpanVerdict, Verdict
from specserve_adaptive.ranked import RankedPlanner
from specserve_adaptive.step_costs import StepCosts
from specserve_workbench.testing.requests import toy_request

RIGHT, WRONG = 1, 2


class Simulation:
    """`right[i]`: P(a draft token for request i is right where those before it are); `stated`: what the drafter
    says, or None.

    `step_seconds(rows)` is what a step takes, with noise; asking costs `asking` for each request, `cold` times as much
    where nobody was asked for before, and `of_pass` for each level of the deepest draft after the first.
    """

    def __init__(
        self, right, *, step_seconds, objective="fair", stated=0.8, asking=0.01, of_pass=0.0, temperature=0.0, seed=0,
        cold=1.0,
    ):  # fmt: skip
        self.random, self.of_pass = random.Random(seed), of_pass
        self.cold, self.limits = cold, ()
        self.right, self.stated, self.asking = list(right), stated, asking
        self.step_seconds = step_seconds
        rows = [1, 2, 4, 8, 16, 32, 64]
        costs = StepCosts(rows, [step_seconds(n) for n in rows])
        self.planner = RankedPlanner(16, costs, objective, ("simulated",))
        self.requests = [self.request(i, temperature) for i in range(len(self.right))]
        self.drafts = [None] * len(self.right)
        self.asked = [0] * len(self.right)
        self.widths, self.gained, self.seconds = [], [], []

    def request(self, i, temperature):
        wire = toy_request(f"r{i}", [1, 2], max_tokens=10**6, temperature=temperature)
        return Request.admit(wire, seed=0, arrival=0.0, order=i, max_len=10**6)

    def step(self):
        requests, planner = self.requests, self.planner
        for request, draft in zip(requests, self.drafts, strict=True):
            request.draft = draft
        chosen = [None] * len(requests)
        if any(self.drafts):
            chosen = planner.choose(requests, 512, len(requests))
        spans, decided = [], []
        for i, (request, choice) in enumerate(zip(requests, chosen, strict=True)):
            drafted = choice or 0
            draft = first(request.draft, drafted) if drafted else None
            tokens = self.truth(self.right[i], drafted)
            spans.append(ScheduledSpan.of(request, 10, 1, scored=1 + drafted, draft=draft))
            decided.append(SpanVerdict(tuple(range(len(tokens) - 1)), tokens, None, None, None))
        rows = sum(span.length for span in spans)
        seconds = self.step_seconds(rows) * self.random.uniform(0.97, 1.03)
        was_asked = any(self.limits)
        batch = SimpleNamespace(spans=tuple(spans), num_rows=rows, only_decodes=True)
        limits = planner.limits(requests)
        self.drafts = [self.draft(limit) for limit in limits]
        asking = 0.0
        if num_drafting := sum(limit > 0 for limit in limits):
            asking = self.asking * num_drafting * (1.0 if was_asked else self.cold) + self.of_pass * (max(limits) - 1)
            planner.own_seconds = 0.0  # of real time
            planner.observe_drafting(asking, num_drafting, self.of_pass if max(limits) > 1 else 0.0)
        planner.learn(batch, Verdict(decided), seconds)
        self.limits = limits
        self.asked = [n + (limit > 0) for n, limit in zip(self.asked, limits, strict=True)]
        self.widths.append([span.drafted for span in spans])
        self.gained.append([len(each.tokens) for each in decided])
        self.seconds.append(seconds + asking)

    def truth(self, right, drafted):
        """What the target gives: right draft tokens and one token more."""
        tokens = []
        while len(tokens) < drafted and self.random.random() < right:
            tokens.append(RIGHT)
        # whether the next draft token would have been right shows in the token after the last verified one
        last = RIGHT if len(tokens) == drafted and self.random.random() < right else WRONG
        return (*tokens, last)

    def draft(self, limit):
        if not limit:
            return None
        stated = self.stated
        survival = None if stated is None else tuple(stated ** (depth + 1) for depth in range(limit))
        return Draft(tokens=(RIGHT,) * limit, survival=survival, source="simulated")

    def run(self, steps):
        for _ in range(steps):
            self.step()
        return self

    def speed(self, steps):
        """Tokens per second of each request over the last steps."""
        seconds = sum(self.seconds[-steps:])
        return [sum(each) / seconds for each in zip(*self.gained[-steps:], strict=True)]

    def mean_width(self, steps):
        return sum(map(sum, self.widths[-steps:])) / steps / len(self.requests)
