"""Drafters that know what each request will say: one guesses just that, one makes mistakes in every shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve.protocols import Drafter
from specserve.types import Draft

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from specserve.batch.request import Request
    from specserve.protocols import DrafterNeeds

    Grow = Callable[[Sequence[int], int], Draft]


class Oracle(Drafter):
    """Chains of the expected answer. `futures`: answers by request id."""

    name = "oracle"

    def __init__(self, futures: Mapping[str, Sequence[int]], needs: DrafterNeeds, rng: random.Random) -> None:
        self.futures, self.needs, self.rng = futures, needs, rng
        self.num_hidden_seen = 0

    def propose(self, batch, output, verdict, limits):
        for layer in output.hidden.values():
            assert layer.shape[0] >= batch.num_rows, "a hidden state has fewer rows than the batch"
            self.num_hidden_seen += 1
        wanted = zip(batch.spans, limits, strict=True)
        return [self.draft(span.request, limit) if limit else None for span, limit in wanted]

    def draft(self, request: Request, limit: int) -> Draft | None:
        tokens = tuple(self.future(request)[:limit])
        return Draft(tokens=tokens) if tokens else None

    def future(self, request: Request) -> Sequence[int]:
        return self.futures.get(request.id, ())[request.num_generated :]


class Noisy(Oracle):
    """Each guess is right with probability p. Chains, trees, duplicate siblings, or nothing; survival stated or not."""

    name = "noisy"

    def __init__(
        self,
        futures: Mapping[str, Sequence[int]],
        needs: DrafterNeeds,
        rng: random.Random,
        *,
        p: float,
        vocab_size: int,
    ) -> None:
        super().__init__(futures, needs, rng)
        self.p, self.vocab_size = p, vocab_size

    def draft(self, request: Request, limit: int) -> Draft | None:
        width = self.rng.randint(0, min(limit, self.rng.choice((2, 8, 40, 200))))
        if not width:
            return None
        grow: Grow = self.chain if self.rng.random() < 0.4 else self.tree
        return grow(self.future(request), width)

    def token_after(self, future: Sequence[int], depth: int) -> int:
        right = depth < len(future) and self.rng.random() < self.p
        return future[depth] if right else self.rng.randrange(self.vocab_size)

    def chain(self, future: Sequence[int], width: int) -> Draft:
        return Draft(tokens=tuple(self.token_after(future, depth) for depth in range(width)))

    def tree(self, future: Sequence[int], width: int) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        shape = self.rng.choice(("random", "deep", "bush"))
        for node in range(width):
            parent = self.parent_of(node, shape)
            depths.append(0 if parent < 0 else depths[parent] + 1)
            parents.append(parent)
            tokens.append(self.token_after(future, depths[-1]))
        survival = tuple(self.rng.random() for _ in tokens) if self.rng.random() < 0.6 else None
        return Draft(tokens=tuple(tokens), parents=tuple(parents), survival=survival)

    def parent_of(self, node: int, shape: str) -> int:
        if shape == "bush" and self.rng.random() < 0.5:
            return -1
        return self.rng.randint(max(-1, node - 3) if shape == "deep" else -1, node - 1)
