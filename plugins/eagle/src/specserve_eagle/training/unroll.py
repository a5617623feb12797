"""The loss of an unrolled head, and what it would accept.

Step j predicts the token j + 2 after a pair's position. Its loss is the cross-entropy to the target's own distribution,
weighted 0.8^j (Li et al., 2025). Letters: B windows, T tokens of each, N positions that every step has, V target
vocabulary, D draft vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from specserve_eagle.training.matching import Match, match
from specserve_eagle.training.modules import Rotation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor

    from specserve_eagle.training.heads import Head
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features, Teacher

STEP_WEIGHT = 0.8


class Unrolled(NamedTuple):
    """Of one batch."""

    loss: Tensor
    greedy: list[Tensor]
    """By step: the share of positions where head and target agree on the most likely token."""
    overlap: list[Tensor]
    """By step: 1 - the total variation between both distributions, what sampled drafts are accepted with."""


def unroll(head: Head, target: Target, ids: Tensor, num_steps: int) -> Unrolled:
    """ids: [B, T] int64."""
    features, teacher = target.lesson(ids, head.layers, head.draft_ids)
    steps = enumerate(unrolled_logits(head, target, features, ids, num_steps))
    return weighted(match((logits,), at_step(teacher, step, logits.shape[1])) for step, logits in steps)


def weighted(matches: Iterable[Match]) -> Unrolled:
    """Of each step or place, in order."""
    found = list(matches)
    total = torch.stack([STEP_WEIGHT**place * each.loss for place, each in enumerate(found)]).sum()
    greedy, overlap = [each.agrees.float().mean() for each in found], [each.overlap.mean() for each in found]
    return Unrolled(total, greedy, overlap)


def unrolled_logits(head: Head, target: Target, features: Features, ids: Tensor, num_steps: int) -> Iterator[Tensor]:
    """Of every step the logits [B, N, D], N = T - num_steps - 1: those at [:, p] draft token p + step + 2 of the text,
    from hidden states that the target gave up to p and tokens of the text up to p + step + 1."""
    N = ids.shape[1] - num_steps - 1
    table = target.rotary
    hidden = head.first(features)[:, :N]
    earlier: list[tuple[Tensor, Tensor]] = []
    for step in range(num_steps):
        positions = slice(step, step + N)
        embedded = F.embedding(ids[:, 1 + step : 1 + step + N], target.embedding)
        rotation = Rotation(table.cos[positions, 0], table.sin[positions, 0])
        hidden, logits = head(embedded, hidden, rotation, earlier)
        yield logits


def at_step(teacher: Teacher, step: int, num_positions: int) -> Teacher:
    """The teacher of what a step drafts at each of its positions."""
    return teacher.at(slice(1 + step, 1 + step + num_positions))


def acceptance_length(rates: list[float]) -> float:
    """Tokens of a verify step, the bonus token included, where every depth is accepted at its own rate."""
    total, survival = 1.0, 1.0
    for rate in rates:
        survival *= rate
        total += survival
    return total
