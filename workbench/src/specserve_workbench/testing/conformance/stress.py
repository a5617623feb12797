"""What is done to an engine with a plugin: random wishes for drafts, parts beside it that fail, aborted requests.

Knows no pytest.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from specserve.declare import InProcessPlugin, PluginDeclaration, Provides, Reference
from specserve.hookspecs import hookimpl
from specserve.protocols import DraftPlanner, LogitsProcessor, ProcessorState
from specserve.types import Draft
from specserve_workbench.testing.drafters import ScriptedDrafter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.engine.engine import Engine
    from specserve.protocols import Metric
    from specserve.types import ForwardOutput, GenerateRequest, RequestOutput, Verdict

WIDTHS = (0, 0, 1, 2, 3, 8, 32)
FAULTY = "faulty"
"""The plugin whose parts fail, and how the ids of the requests begin that its processor lets fail."""


class RandomPlanner(DraftPlanner):
    """Other limits in every step, and any number of each draft's first tokens."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def limits(self, requests: Sequence[Request]) -> list[int]:
        return [self.random.choice(WIDTHS) for _ in requests]

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[int]:
        chosen = []
        for request in requests:
            size = 0 if request.draft is None else len(request.draft.tokens)
            chosen.append(min(self.random.randint(0, size), budget))
            budget -= chosen[-1]
        return chosen


class SeldomPlanner(DraftPlanner):
    """Wants a draft of each request whose length is a multiple of sixteen, verifies none of it, and need not be called
    before. `drafts`: what was drafted, by request and length."""

    WIDTH, EVERY = 4, 16

    def __init__(self) -> None:
        self.left = 0
        self.drafts: dict[tuple[str, int], Draft] = {}

    def limits(self, requests: Sequence[Request]) -> list[int]:
        beyond = [len(request.tokens) % self.EVERY for request in requests]
        self.left = self.EVERY - 1 - max(beyond, default=0)
        return [0 if each else self.WIDTH for each in beyond]

    def idle_steps(self) -> int:
        return self.left

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> list[None]:
        self.drafts |= {(r.id, len(r.tokens)): r.draft for r in requests if r.draft is not None}
        return [None] * len(requests)


class RubbishDrafter(ScriptedDrafter):
    """Everything that a draft must not be, and now and then a right one."""

    name = "rubbish"

    def __init__(self, outputs: Mapping[str, Sequence[int]], vocab_size: int, seed: int) -> None:
        super().__init__(outputs)
        self.vocab_size, self.random = vocab_size, random.Random(seed)

    def draft(self, request: Request, limit: int) -> Draft:
        count = self.random.choice((1, limit, limit + 1, 3 * limit))
        tokens = [self.random.randint(-2, self.vocab_size + 2) for _ in range(count)]
        right = tuple(self.future(request)[:limit]) or (0,)
        return self.random.choice(
            (
                Draft(tokens=right),
                Draft(tokens=right, parents=tuple(range(-1, len(right) - 1))),
                Draft(tokens=tuple(tokens)),
                Draft(tokens=right, parents=tuple(self.random.randint(-2, len(right)) for _ in right)),
                Draft(tokens=right, survival=tuple(self.random.uniform(-1.0, 2.0) for _ in right)),
                Draft(tokens=right[:1] * max(1, limit), parents=(-1,) * max(1, limit)),
            )
        )


class FaultyPlugin(LogitsProcessor):
    """Its observer and its request check fail now and then, and its processor for requests named so."""

    name = FAULTY

    def __init__(self) -> None:
        self.num_calls = 0

    def fail_sometimes(self) -> None:
        self.num_calls += 1
        if self.num_calls % 3 == 0:
            raise OSError("a part beside the plugin fails")

    @hookimpl
    def make_observer(self) -> FaultyPlugin:
        return self

    @hookimpl
    def logits_processors(self) -> list[FaultyPlugin]:
        return [self]

    @hookimpl
    def check_request(self, request: GenerateRequest) -> None:
        self.fail_sometimes()

    def observe(self, batch: ScheduledBatch, verdict: Verdict, output: ForwardOutput) -> None:
        self.fail_sometimes()

    def metrics(self) -> Iterable[Metric]:
        return ()

    def start(self, request: Request, vocab_size: int) -> ProcessorState | None:
        return FailingState() if request.id.startswith(FAULTY) else None


class FailingState(ProcessorState):
    """Fails in the third step."""

    def __init__(self) -> None:
        self.num_commits = 0

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        return logits

    def commit(self, tokens: Sequence[int]) -> None:
        self.num_commits += 1
        if self.num_commits == 3:
            raise OSError("a neighbour's processor fails")


def faulty_plugin() -> InProcessPlugin:
    provides: dict[str, Reference | Provides | str] = {
        "observer.metrics": "fails now and then",
        "logits.processor": "fails for some",
    }
    return InProcessPlugin(FaultyPlugin(), PluginDeclaration(name=FAULTY, provides=provides))


def run_with_aborts(engine: Engine, requests: Sequence[GenerateRequest], seed: int) -> dict[str, list[int]]:
    """Serve them, but abort every third at a random step. Tokens of the others."""
    rng = random.Random(seed)
    aborts = {request.request_id: rng.randint(0, 12) for request in requests[::3]}
    tokens: dict[str, list[int]] = {request.request_id: [] for request in requests}

    def keep(outputs: Iterable[RequestOutput]) -> None:
        for output in outputs:
            tokens[output.request_id] += output.tokens

    for request in requests:
        engine.check(request)
        engine.add(request)
    step = 0
    while engine.has_work:
        for request_id in [name for name, at in aborts.items() if at == step]:
            engine.abort(request_id)
        keep(engine.step())
        step += 1
    engine.check_integrity()
    return {name: found for name, found in tokens.items() if name not in aborts}
