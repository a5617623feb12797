"""What a frozen target teaches about a batch of text, kept for a while so that a head can learn from it again.

Most of a training step's time goes into the target. Letters: B windows, T tokens of each, H hidden size, V target
vocabulary, D draft vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

ROWS_AT_ONCE = 64
"""Of logits in float32, which stay in the processor's cache."""
ROOM = 2 << 30
"""Bytes of lessons that are kept, at most."""


class Features(NamedTuple):
    """What a head learns from: of every token of [B, T]."""

    hidden: dict[int, Tensor]
    """[B, T, H] by layer: 0 is the embedding, n the output of layer n - 1."""
    final: Tensor
    """[B, T, H], behind the final norm."""
    logits: Tensor
    """[B, T, V] in the model's dtype, in float32 where the family divides or caps them; nothing of a lesson that is
    kept."""


class Teacher(NamedTuple):
    """What the target wants drafted after each token."""

    probabilities: Tensor
    """[B, T, D], of the draft vocabulary's tokens: they may add up to less than 1."""
    best: Tensor
    """[B, T], the draft id of the most likely token; -1 where the draft vocabulary lacks it."""

    def at(self, positions: slice | Tensor) -> Teacher:
        """Those of some positions alone."""
        return Teacher(self.probabilities[:, positions], self.best[:, positions])


class Lesson(NamedTuple):
    """Of one batch."""

    features: Features
    """Without logits."""
    teacher: Teacher


@torch.no_grad()
def teacher_of(logits: Tensor, draft_ids: Tensor | None, temperature: float = 1.0) -> Teacher:
    """logits: [B, T, V] of the target."""
    best = logits.argmax(-1)
    if draft_ids is None:
        return Teacher((logits.float() / temperature).softmax(-1), best)
    of_target = torch.full((logits.shape[-1],), -1, device=logits.device)
    of_target[draft_ids] = torch.arange(len(draft_ids), device=logits.device)
    normalizers = [
        (part.float() / temperature).logsumexp(-1) for part in torch.split(logits.flatten(0, 1), ROWS_AT_ONCE)
    ]
    drafted = logits[..., draft_ids].float() / temperature
    probabilities = drafted.sub_(torch.cat(normalizers).view(*best.shape, 1)).exp_()
    return Teacher(probabilities, of_target[best])


class KeptLesson(NamedTuple):
    lesson: Lesson
    uses_left: int


class LessonMemory:
    """The lessons of batches that come again: each is kept until its batch has come `reuse` times. Where `ROOM` does
    not hold them the oldest goes."""

    def __init__(self, reuse: int) -> None:
        self.reuse = reuse
        self.lessons: dict[bytes, KeptLesson] = {}
        self.num_bytes = 0

    def get(self, ids: Tensor, teach: Callable[[], Lesson]) -> Lesson:
        """Kept of this batch [B, T], or taught now. The same numbers either way: probabilities in 16 bits."""
        key = ids.cpu().numpy().tobytes()
        known = self.lessons.get(key)
        if known is None:
            lesson = teach()
            teacher = lesson.teacher._replace(probabilities=lesson.teacher.probabilities.bfloat16())
            lesson = lesson._replace(teacher=teacher)
            self.keep(key, lesson)
            return lesson
        if known.uses_left > 1:
            self.lessons[key] = known._replace(uses_left=known.uses_left - 1)
        else:
            self.drop(key)
        return known.lesson

    def keep(self, key: bytes, lesson: Lesson) -> None:
        needed = size_of(lesson)
        while self.lessons and self.num_bytes + needed > ROOM:
            self.drop(next(iter(self.lessons)))
        self.lessons[key] = KeptLesson(lesson, self.reuse - 1)
        self.num_bytes += needed

    def drop(self, key: bytes) -> None:
        self.num_bytes -= size_of(self.lessons.pop(key).lesson)


def size_of(lesson: Lesson) -> int:
    features, teacher = lesson
    return sum(each.nbytes for each in (*features.hidden.values(), features.final, *teacher))


def lessons_kept(num_tokens: int, hidden_size: int, num_hidden: int, draft_vocab: int) -> int:
    """How many batches of that many tokens are kept for certain, at least one: of `num_hidden` hidden states each,
    in float32 at most."""
    each = num_tokens * (4 * hidden_size * num_hidden + 2 * draft_vocab + 8)
    return max(1, ROOM // each)
