"""Shared text in generations by namespace, and corpora. Twin of shared_text.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specserve_ngram._native import Tuning
from twin.contexts import Contexts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twin.contexts import Ranking


class Corpus:
    def __init__(self, ranking: Ranking) -> None:
        self.contexts, self.num_tokens = Contexts(ranking), 0

    def add(self, tokens: Sequence[int]) -> None:
        text = ""
        for token in map(chr, tokens):
            self.contexts.extend(text, token, None)
            text += token
        self.num_tokens += len(text)


@dataclass(slots=True, eq=False)
class Generation:
    owner: Namespace
    contexts: Contexts
    num_tokens: int = 0


@dataclass(slots=True, eq=False)
class Namespace:
    generations: list[Generation] = field(default_factory=list)  # newest first
    is_open: bool = False


@dataclass(slots=True, eq=False)
class CorpusEntry:
    """A corpus that is added again is another one."""

    corpus: Corpus


class SharedText:
    def __init__(self, ranking: Ranking, capacity: int, generations: int) -> None:
        self.ranking: Ranking = ranking
        self.capacity, self.per_generation = capacity, capacity // generations
        self.generations: list[Generation] = []  # oldest first
        self.num_evicted = 0
        self.namespaces: dict[str, Namespace] = {}
        self.corpora: dict[str, CorpusEntry] = {}

    def namespace(self, name: str) -> Namespace:
        return self.namespaces.setdefault(name, Namespace())

    def current(self, namespace: Namespace) -> Generation:
        if not namespace.is_open:
            self.generations.append(Generation(namespace, Contexts(self.ranking)))
            namespace.generations.insert(0, self.generations[-1])
            namespace.is_open = True
            self.evict()
        return namespace.generations[0]

    def count_token(self, generation: Generation) -> None:
        generation.num_tokens += 1
        if generation.num_tokens >= self.per_generation:
            generation.owner.is_open = False
        self.evict()

    def evict(self) -> None:
        while len(self.generations) > 1 and self.charged() > self.capacity:
            oldest = self.generations.pop(0)
            if oldest.owner.generations[0] is oldest:
                oldest.owner.is_open = False
            oldest.owner.generations.remove(oldest)
            self.num_evicted += 1

    def charged(self) -> int:
        return sum(max(generation.num_tokens, Tuning.MIN_CHARGE) for generation in self.generations)
