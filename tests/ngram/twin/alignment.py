"""Where a text stands that it follows, and the way back after an edit. Twin of trace.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

AHEAD, PATIENCE, CONVINCING = 64, 48, 4
HABITS = 8

Relation = Literal["none", "next", "other", "after_insertion", "after_replacement", "nearest", "lost"]


@dataclass(slots=True)
class Trace:
    at: int | None = None  # place of the newest token of the followed text
    stretch: int = 0  # tokens followed
    lost: int = 0  # tokens since it was left
    nearest: int | None = None  # while lost: the first place ahead with the newest token
    habit: np.float32 = field(default_factory=lambda: np.float32(0.5))  # a float in C++ too

    def guesses(self, text: str) -> list[str | None]:
        """The next token: after an insertion (or none), after a replacement, after the nearest place."""
        if self.at is None:
            return [None] * 3
        places = [self.at, self.at + self.lost, self.nearest] if self.lost else [self.at]
        tokens = [None if place is None or place + 1 >= len(text) else text[place + 1] for place in places]
        return tokens + [None] * (3 - len(tokens))

    def relation(self, text: str, token: str) -> Relation:
        if self.at is None:
            return "none"
        straight, replaced, near = self.guesses(text)
        if token == straight:
            return "after_insertion" if self.lost else "next"
        if not self.lost:
            return "other"
        return "after_replacement" if token == replaced else "nearest" if token == near else "lost"

    @property
    def length(self) -> int:
        return 2 if self.lost else self.stretch + 1

    @property
    def age(self) -> int:
        return self.lost or self.stretch

    @property
    def habit_level(self) -> int:
        return min(HABITS - 1, int(self.habit * HABITS))

    def follow(self, place: int, stretch: int) -> None:
        self.at, self.stretch, self.lost = place, stretch, 0

    def move(self, text: str, before: str, token: str) -> None:
        """`token` follows `before`; neither needs to be in `text`, which holds what was committed."""
        if self.at is None:
            return
        straight, replaced, near = self.guesses(text)
        if token == straight:
            return self.follow(self.at + 1, 1 if self.lost else self.stretch + 1)
        if token == replaced:
            return self.follow(self.at + self.lost + 1, 1)
        if token == near:
            assert self.nearest is not None
            return self.follow(self.nearest + 1, 2)
        was_lost = self.lost > 0
        self.lost, self.stretch = self.lost + 1, 0
        ahead = [i for i in range(self.at + 1, min(self.at + AHEAD + 1, len(text))) if text[i] == token]
        self.nearest = ahead[0] if ahead else None
        back = [i for i in ahead if text[i - 1] == before]
        if was_lost and back:
            self.follow(back[0], 2)

    def consider(self, end: int | None, length: int) -> None:
        """The longest match has `length` tokens and had ended at `end`."""
        if end is None:
            return
        given_up = self.at is None or self.lost > PATIENCE
        if (length >= 2) if given_up else (self.lost > 0 and length >= CONVINCING):
            self.follow(end, length)

    def get_used_to(self, predicted: bool) -> None:
        self.habit += np.float32(0.03) * (np.float32(predicted) - self.habit)

    def copy(self) -> Trace:
        return replace(self)
