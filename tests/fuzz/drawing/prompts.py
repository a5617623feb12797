"""Draws prompts: on the borders of blocks and of the context, repetitive, with shared prefixes, after an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

Tokens = tuple[int, ...]
FIRST_BYTES = range(126, 177)
"""Of the toy's tokens: the bytes 0xC2 to 0xF4, each the first of a UTF-8 character of several."""


class Prompts(NamedTuple):
    """`longest`: tokens of a prompt at most; `said`: earlier prompts with their answers."""

    vocab_size: int
    longest: int
    block_size: int
    prefixes: Sequence[Tokens]
    said: list[tuple[Tokens, Tokens]]

    def draw(self, rng: random.Random) -> Tokens:
        kinds = (self.one, self.full, self.blocks, self.pattern, self.pattern, self.prefixed, self.prefixed)
        going_on = (self.after, self.after) if self.said else ()
        drawn = rng.choice((*kinds, *going_on, self.any_length))(rng)[: self.longest]
        return (*drawn[:-1], rng.choice(FIRST_BYTES)) if rng.random() < 0.15 else drawn

    def some(self, rng: random.Random, count: int) -> Tokens:
        return tuple(rng.randrange(self.vocab_size) for _ in range(max(1, count)))

    def one(self, rng: random.Random) -> Tokens:
        return self.some(rng, 1)

    def full(self, rng: random.Random) -> Tokens:
        return self.some(rng, self.longest - rng.choice((0, 0, 1, 2, 5)))

    def blocks(self, rng: random.Random) -> Tokens:
        """Full blocks, or one token more or less."""
        most = max(1, self.longest // self.block_size)
        return self.some(rng, self.block_size * rng.randint(1, most) + rng.choice((-1, 0, 0, 0, 1)))

    def pattern(self, rng: random.Random) -> Tokens:
        return (self.some(rng, rng.randint(1, 6)) * self.longest)[: rng.randint(1, self.longest)]

    def prefixed(self, rng: random.Random) -> Tokens:
        prefix = rng.choice(self.prefixes)
        whole = rng.random() < 0.7
        return (prefix if whole else prefix[: rng.randint(1, len(prefix))]) + self.some(rng, rng.randint(0, 9))

    def after(self, rng: random.Random) -> Tokens:
        """An earlier request again, whole or in part, or what follows its answer."""
        prompt, answer = rng.choice(self.said)
        whole = prompt + answer
        chosen = rng.choice((prompt, whole, whole + self.some(rng, 3), answer or prompt, whole[:-1] or prompt))
        return chosen[-self.longest :] if rng.random() < 0.5 else chosen

    def any_length(self, rng: random.Random) -> Tokens:
        return self.some(rng, rng.randint(1, self.longest))

    def next_turn(self, rng: random.Random) -> Tokens:
        """A dialogue goes on: one of the last three answers, and a few tokens more."""
        prompt, answer = rng.choice(self.said[-3:])
        return (prompt + answer + self.some(rng, rng.randint(1, 4)))[: self.longest]
