"""Three drafters whose quality is known: always right, never right, right with a chosen probability.

They get the expected output of each request, so that acceptance counts can be checked exactly.
`noisy` draws its shapes, widths and mistakes from a seed: chains, trees, duplicate siblings, no draft at all.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from specserve.protocols import Drafter
from specserve.types import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from specserve.batch.batch import ScheduledBatch
    from specserve.batch.request import Request
    from specserve.types import ForwardOutput, Verdict


class ScriptedDrafter(Drafter):
    """Drafts from the known continuation of each request; `outputs` maps request id to output tokens."""

    name = "scripted"

    def __init__(self, outputs: Mapping[str, Sequence[int]]) -> None:
        self.outputs = outputs

    def propose(
        self, batch: ScheduledBatch, output: ForwardOutput, verdict: Verdict, limits: Sequence[int]
    ) -> list[Draft | None]:
        return [
            self.draft(span.request, limit) if limit else None for span, limit in zip(batch.spans, limits, strict=True)
        ]

    def draft(self, request: Request, limit: int) -> Draft | None:
        raise NotImplementedError

    def future(self, request: Request) -> Sequence[int]:
        return self.outputs[request.id][request.num_generated :]


class OracleDrafter(ScriptedDrafter):
    """Always right: chains of `width` tokens of the expected output."""

    name = "oracle"

    def __init__(self, outputs: Mapping[str, Sequence[int]], width: int) -> None:
        super().__init__(outputs)
        self.width = width

    def draft(self, request: Request, limit: int) -> Draft | None:
        tokens = tuple(self.future(request)[: min(limit, self.width)])
        return Draft(tokens=tokens) if tokens else None


class WrongDrafter(OracleDrafter):
    """Never right: the expected token plus one at every position."""

    name = "wrong"

    def __init__(self, outputs: Mapping[str, Sequence[int]], width: int, vocab_size: int) -> None:
        super().__init__(outputs, width)
        self.vocab_size = vocab_size

    def draft(self, request: Request, limit: int) -> Draft | None:
        right = super().draft(request, limit)
        return right and Draft(tokens=tuple((t + 1) % self.vocab_size for t in right.tokens))


class NoisyDrafter(ScriptedDrafter):
    """Each draft token is right with probability p; widths 0..max_width; a tree every other time, with siblings
    around the right token in random order."""

    name = "noisy"

    def __init__(
        self, outputs: Mapping[str, Sequence[int]], *, p: float, max_width: int, vocab_size: int, seed: int = 0
    ) -> None:
        super().__init__(outputs)
        self.p, self.max_width, self.vocab_size = p, max_width, vocab_size
        self.random = random.Random(seed)

    def draft(self, request: Request, limit: int) -> Draft | None:
        width = self.random.randint(0, min(limit, self.max_width))
        if width == 0:
            return None
        grow = self.random.choice((self.chain, self.tree))
        return grow(self.future(request), width)

    def token_after(self, future: Sequence[int], depth: int) -> int:
        if depth < len(future) and self.random.random() < self.p:
            return future[depth]
        return self.random.randrange(self.vocab_size)

    def chain(self, future: Sequence[int], width: int) -> Draft:
        return Draft(tokens=tuple(self.token_after(future, depth) for depth in range(width)))

    def tree(self, future: Sequence[int], width: int) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        for node in range(width):
            parent = self.random.randint(-1, node - 1)
            depths.append(0 if parent == -1 else depths[parent] + 1)
            parents.append(parent)
            tokens.append(self.token_after(future, depths[node]))
        stated = tuple(self.random.random() for _ in tokens) if self.random.random() < 0.5 else None
        return Draft(tokens=tuple(tokens), parents=tuple(parents), survival=stated)


class DrafterPlugin:
    """An in-process plugin with one drafter and, if given, a planner."""

    def __init__(self, make: Callable[[], object], planner: object | None = None) -> None:
        from specserve.hookspecs import hookimpl

        # hook implementations are found by attribute, so they are made here, marked, per instance
        self.make_drafter = hookimpl(lambda: make())
        if planner is not None:
            self.make_draft_planner = hookimpl(lambda: planner)


class PlannerPlugin:
    """An in-process plugin with a planner alone."""

    def __init__(self, planner: object) -> None:
        from specserve.hookspecs import hookimpl

        self.make_draft_planner = hookimpl(lambda: planner)
