"""Shared text in generations by namespace, and corpora. Twin of library.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from twin.contexts import Contexts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twin.contexts import Order

LEAST_CHARGE = 64


class Corpus:
    def __init__(self, order: Order) -> None:
        self.contexts, self.num_tokens = Contexts(order), 0

    def add(self, tokens: Sequence[int]) -> None:
        text = ""
        for token in map(chr, tokens):
            self.contexts.extend(text, token, None)
            text += token
        self.num_tokens += len(text)


@dataclass(slots=True, eq=False)
class Generation:
    shelf: Shelf
    contexts: Contexts
    num_tokens: int = 0


@dataclass(slots=True, eq=False)
class Shelf:
    generations: list[Generation] = field(default_factory=list)  # newest first
    is_open: bool = False


@dataclass(slots=True, eq=False)
class ShelvedCorpus:
    """A corpus that was given twice is two."""

    corpus: Corpus


class Library:
    def __init__(self, order: Order, capacity: int, generations: int) -> None:
        self.order: Order = order
        self.capacity, self.per_generation = capacity, capacity // generations
        self.generations: list[Generation] = []  # oldest first
        self.num_evicted = 0
        self.shelves: dict[str, Shelf] = {}
        self.corpora: dict[str, ShelvedCorpus] = {}

    def shelf(self, namespace: str) -> Shelf:
        return self.shelves.setdefault(namespace, Shelf())

    def current(self, shelf: Shelf) -> Generation:
        if not shelf.is_open:
            self.generations.append(Generation(shelf, Contexts(self.order)))
            shelf.generations.insert(0, self.generations[-1])
            shelf.is_open = True
            self.fit()
        return shelf.generations[0]

    def count(self, generation: Generation) -> None:
        generation.num_tokens += 1
        if generation.num_tokens >= self.per_generation:
            generation.shelf.is_open = False
        self.fit()

    def fit(self) -> None:
        while len(self.generations) > 1 and self.charge() > self.capacity:
            oldest = self.generations.pop(0)
            if oldest.shelf.generations[0] is oldest:
                oldest.shelf.is_open = False
            oldest.shelf.generations.remove(oldest)
            self.num_evicted += 1

    def charge(self) -> int:
        return sum(max(generation.num_tokens, LEAST_CHARGE) for generation in self.generations)
