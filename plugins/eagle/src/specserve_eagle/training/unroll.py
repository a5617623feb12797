"""The loss of an unrolled head, and what it would accept.

Step j predicts the token j + 2 after a pair's position. Its loss is the cross-entropy to the target's own distribution,
weighted 0.8^j (Li et al., 2025). Letters: B windows, N positions of each, V target vocabulary, D draft vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from specserve_eagle.training.modules import Rotation

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_eagle.training.heads import Head
    from specserve_eagle.training.target import Target

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
    features = target.features(ids, head.layers)
    N = ids.shape[1] - num_steps - 1
    embedding = target.model.embedding
    table = target.model.rotary
    hidden = head.first(features)[:, :N]
    earlier: list[tuple[Tensor, Tensor]] = []
    total, greedy, overlap = torch.zeros((), device=ids.device), [], []
    for step in range(num_steps):
        positions = slice(step, step + N)
        embedded = F.embedding(ids[:, 1 + step : 1 + step + N], embedding)
        rotation = Rotation(table.cos[positions, 0], table.sin[positions, 0])
        hidden, logits = head(embedded, hidden, rotation, earlier)
        wanted = features.logits[:, 1 + step : 1 + step + N]
        probabilities, best = target_distribution(wanted, head.draft_ids)
        log_q = logits.float().log_softmax(-1)
        total = total - STEP_WEIGHT**step * (probabilities * log_q).sum(-1).mean()
        with torch.no_grad():
            greedy.append((log_q.argmax(-1) == best).float().mean())
            overlap.append(torch.minimum(log_q.exp(), probabilities).sum(-1).mean())
    return Unrolled(total, greedy, overlap)


@torch.no_grad()
def target_distribution(logits: Tensor, draft_ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """The target's probabilities of the draft vocabulary's tokens [B, N, D], which may add up to less than 1, and the
    draft id of its most likely token [B, N], -1 where the draft vocabulary lacks it."""
    probabilities = logits.float().softmax(-1)
    best = probabilities.argmax(-1)
    if draft_ids is None:
        return probabilities, best
    of_target = torch.full((logits.shape[-1],), -1, device=logits.device)
    of_target[draft_ids] = torch.arange(len(draft_ids), device=logits.device)
    return probabilities[..., draft_ids], of_target[best]


def acceptance_length(rates: list[float]) -> float:
    """Tokens of a verify step, the bonus token included, where every depth is accepted at its own rate."""
    total, survival = 1.0, 1.0
    for rate in rates:
        survival *= rate
        total += survival
    return total
