"""The loss of a block head, and the logits that it is measured by.

Place i of a block drafts the token i + 1 after its anchor, behind the text's own tokens. Its loss is the cross-entropy
to the target's own distribution, weighted 0.8^i as in EAGLE-3, and that of the confidence head to the share of sampled
drafts that would be accepted there. Letters: see `block_heads`; N positions that are drafted from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from specserve_eagle.training.block_heads import block_states
from specserve_eagle.training.matching import match
from specserve_eagle.training.unroll import weighted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve_eagle.training.block_heads import BlockHeadModule, Place
    from specserve_eagle.training.matching import Match
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features, Teacher
    from specserve_eagle.training.unroll import Unrolled

ANCHORS_AT_ONCE = 64
"""Of an evaluation, which drafts from every position."""


def sample_anchors(ids: Tensor, count: int, num_proposed: int, step: int = 0) -> Tensor:
    """[A <= count] positions of a batch [B, T] behind which there are as many tokens as a block drafts, ascending. They
    depend on the batch and the training step alone, so that a resumed run draws what an uninterrupted one does, and a
    batch that comes again is drafted from elsewhere."""
    generator = torch.Generator().manual_seed(int(ids.sum()) + step)
    places = torch.randperm(ids.shape[1] - num_proposed - 1, generator=generator)[:count]
    return 1 + places.sort().values.to(ids.device)


def block_loss(head: BlockHeadModule, target: Target, ids: Tensor, num_anchors: int, step: int = 0) -> Unrolled:
    """ids: [B, T] int64."""
    features, teacher = target.lesson(ids, head.shape.reads, head.draft_ids)
    anchors = sample_anchors(ids, num_anchors, head.shape.num_proposed, step)
    states = block_states(head, target, features, ids, anchors)
    places = enumerate(head.places(states, ids[:, tokens_before(anchors, states.shape[2])]))
    return weighted(matched(drafted, teacher.at(anchors + place)) for place, drafted in places)


def matched(drafted: Place, wanted: Teacher) -> Match:
    """With the loss of the confidence head, where there is one."""
    found = match(drafted.terms, wanted)
    if drafted.confidence is None:
        return found
    return found._replace(loss=found.loss + F.binary_cross_entropy_with_logits(drafted.confidence, found.overlap))


def block_logits(
    head: BlockHeadModule, target: Target, features: Features, ids: Tensor, num_steps: int
) -> Iterator[Tensor]:
    """Of every place up to num_steps <= P the logits [B, N, D], N = T - P - 1: those at [:, p] draft token
    p + place + 2 of the text, by a block that begins with token p + 1; see `unrolled_logits`."""
    anchors = 1 + torch.arange(ids.shape[1] - head.shape.num_proposed - 1, device=ids.device)
    parts = []
    for begin in range(0, len(anchors), ANCHORS_AT_ONCE):
        made = block_states(head, target, features, ids, anchors[begin : begin + ANCHORS_AT_ONCE])
        parts.append(made[:, :, :num_steps])
    states = torch.cat(parts, 1)
    for drafted in head.places(states, ids[:, tokens_before(anchors, num_steps)]):
        yield drafted.logits


def tokens_before(anchors: Tensor, num_places: int) -> Tensor:
    """anchors: [A] -> [A, places], the position of the token before each place of a block."""
    return anchors[:, None] + torch.arange(num_places, device=anchors.device)
