"""Parts that raise now and then or break their contract: what they do to the engine is contained, and costs no token.

A processor's fault ends its own request. A planner's costs a step's guesses, an observer's costs nothing. Where faults
go on in a row, the part is switched off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fuzz.parts.planning import Chaos
from fuzz.parts.processing import Processor
from specserve.protocols import Metric, ProcessorState
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from torch import Tensor

    from specserve.batch.request import Request
    from specserve.protocols import LogitEdits

CHANCE = 0.05
"""Of a fault, per call."""
RIGHT_METRIC = Metric("fuzz_sum", "a fuzzer's", "gauge", 1.0)
WRONG_METRICS: tuple[Any, ...] = (None, 7, Metric("no name", "", "gauge", 1.0), Metric("fuzz", "", "sum", 1.0))


class FaultError(Exception):
    """Raised on purpose."""


class Faults:
    """Decides when a part raises: now and then, or from a moment on in every call."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.lasting, self.count = rng, rng.random() < 0.3, 0

    def maybe(self) -> None:
        if self.rng.random() < CHANCE or (self.lasting and self.count):
            self.count += 1
            raise FaultError

    def odd(self, right: Any, *wrong: Any) -> Any:
        """The right answer, or now and then another."""
        return self.rng.choice(wrong) if self.rng.random() < CHANCE else right


class FaultyState(ProcessorState):
    """Passes on to another state, or raises. It has `edit` where the other has."""

    def __init__(self, state: ProcessorState, request: Request, owner: FaultyProcessor) -> None:
        self.state, self.request_id, self.owner = state, request.id, owner
        self.has_edits = state.has_edits

    def apply(self, logits: Tensor, path: Sequence[int]) -> Tensor:
        self.owner.raise_for(self.request_id)
        return self.state.apply(logits, path)

    def commit(self, tokens: Sequence[int]) -> None:
        self.owner.raise_for(self.request_id)
        self.state.commit(tokens)

    def edit(self, edits: LogitEdits, path: Sequence[int]) -> None:
        self.owner.raise_for(self.request_id)
        self.state.edit(edits, path)


class FaultyProcessor(Processor):
    """`essential` processors are never switched off."""

    def __init__(self, kind: str, faults: Faults | None, *, essential: bool) -> None:
        super().__init__(kind)
        self.faults, self.essential = faults, essential
        self.asked: list[str] = []
        """Requests that it was to process, which are all until it is switched off."""
        self.raised: set[str] = set()

    def raise_for(self, request_id: str) -> None:
        if self.faults is not None:
            count = self.faults.count
            try:
                self.faults.maybe()
            finally:
                if self.faults.count > count:
                    self.raised.add(request_id)

    def start(self, request: Request, vocab_size: int) -> Any:
        self.asked.append(request.id)
        state = super().start(request, vocab_size)
        if state is None or self.faults is None:
            return state
        self.raise_for(request.id)
        return FaultyState(state, request, self)


class FaultyPlanner(Chaos):
    """Raises, answers for too many, allows too much, makes drafts up."""

    def __init__(self, max_draft_tokens: int, rng: Random, faults: Faults) -> None:
        super().__init__(max_draft_tokens, rng)
        self.faults = faults

    def limits(self, requests: Sequence[Request]) -> Any:
        self.faults.maybe()
        right = super().limits(requests)
        return self.faults.odd(right, None, [*right, 1], [10**9] * len(right), [-1] * len(right), ["1"] * len(right))

    def choose(self, requests: Sequence[Request], budget: int, base_rows: int) -> Any:
        self.faults.maybe()
        right = super().choose(requests, budget, base_rows)
        made_up = [Draft(tokens=(1, 2, 3)) for _ in right]
        whole = [request.draft for request in requests]
        wrong = [Draft(tokens=(10**6,)) for _ in right]
        return self.faults.odd(right, None, [*right, None], made_up, whole, wrong)

    def learn(self, batch: Any, verdict: Any, seconds: float) -> None:
        self.faults.maybe()


class FaultyObserver:
    """Right at start-up, where its metrics are looked at once: one that is wrong from the beginning does not start."""

    def __init__(self, faults: Faults) -> None:
        self.faults, self.started = faults, False

    def observe(self, batch: Any, verdict: Any) -> None:
        self.faults.maybe()

    def metrics(self) -> list[Any]:
        if not self.started:
            self.started = True
            return [RIGHT_METRIC]
        self.faults.maybe()
        return [RIGHT_METRIC, self.faults.odd(RIGHT_METRIC, *WRONG_METRICS)]
