"""The alignment of a text with an earlier part of itself that it repeats with edits. Twin of alignment.hpp."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from specserve_ngram._native import Relation, Tuning


@dataclass(slots=True)
class Alignment:
    at: int | None = None  # position of the followed part's newest token
    followed: int = 0  # tokens since the alignment began
    diverged: int = 0  # tokens since it diverged; 0 while aligned
    nearest: int | None = None  # while diverged: the first position ahead that holds the newest token
    hit_rate: np.float32 = field(default_factory=lambda: np.float32(0.5))  # a float in C++ too

    def predictions(self, text: str) -> list[str | None]:
        """The next token; while diverged, after an insertion, a substitution and a deletion."""
        if self.at is None:
            return [None] * 3
        positions = [self.at, self.at + self.diverged, self.nearest] if self.diverged else [self.at]
        tokens = [None if at is None or at + 1 >= len(text) else text[at + 1] for at in positions]
        return tokens + [None] * (3 - len(tokens))

    def relation(self, text: str, token: str) -> Relation:
        if self.at is None:
            return Relation.UNALIGNED
        predictions = self.predictions(text)
        if not self.diverged:
            return Relation.PREDICTED if token == predictions[0] else Relation.MISMATCH
        relations = (Relation.AFTER_INSERTION, Relation.AFTER_SUBSTITUTION, Relation.AFTER_DELETION)
        return next(
            (r for r, predicted in zip(relations, predictions, strict=True) if token == predicted), Relation.DIVERGED
        )

    @property
    def length(self) -> int:
        return 2 if self.diverged else self.followed + 1

    @property
    def run_length(self) -> int:
        return self.diverged or self.followed

    @property
    def hit_rate_bucket(self) -> int:
        return min(Tuning.HIT_RATE_BUCKETS - 1, int(self.hit_rate * Tuning.HIT_RATE_BUCKETS))

    def follow(self, position: int, followed: int) -> None:
        self.at, self.followed, self.diverged = position, followed, 0

    def advance(self, text: str, before: str, token: str) -> None:
        """`token` follows `before`; neither needs to be in `text`, which holds what was committed."""
        if self.at is None:
            return
        after_insertion, after_substitution, after_deletion = self.predictions(text)
        if token == after_insertion:
            return self.follow(self.at + 1, 1 if self.diverged else self.followed + 1)
        if token == after_substitution:
            return self.follow(self.at + self.diverged + 1, 1)
        if token == after_deletion:
            assert self.nearest is not None
            return self.follow(self.nearest + 1, 2)
        was_diverged = self.diverged > 0
        self.diverged, self.followed = self.diverged + 1, 0
        stop = min(self.at + Tuning.SEARCH_WINDOW + 1, len(text))
        ahead = [i for i in range(self.at + 1, stop) if text[i] == token]
        self.nearest = ahead[0] if ahead else None
        resumed = [i for i in ahead if text[i - 1] == before]
        if was_diverged and resumed:
            self.follow(resumed[0], 2)

    def realign(self, end: int | None, length: int) -> None:
        """The longest match has `length` tokens and had ended at `end`."""
        if end is None:
            return
        if self.at is None or self.diverged > Tuning.MAX_DIVERGENCE:
            is_better = length >= 2
        else:
            is_better = self.diverged > 0 and length >= Tuning.REALIGN_LENGTH
        if is_better:
            self.follow(end, length)

    def update_hit_rate(self, hit: bool) -> None:
        self.hit_rate += np.float32(Tuning.HIT_RATE_UPDATE) * (np.float32(hit) - self.hit_rate)

    def copy(self) -> Alignment:
        return replace(self)
