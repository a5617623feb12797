"""The loss of a draft adapter, and the logits that it is measured by.

Place i of a draft is the token i + 1 after its anchor, behind the text's own tokens. The target itself gives the first;
the loss of each further one is the cross-entropy to the target's own distribution, weighted 0.8^i as in EAGLE-3.
Letters: see `uno_module`; N positions that are drafted from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from specserve_eagle.training.blocks import ANCHORS_AT_ONCE, sample_anchors
from specserve_eagle.training.matching import Match, match
from specserve_eagle.training.uno_module import noise_logits, noise_states, place_logits
from specserve_eagle.training.unroll import weighted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features
    from specserve_eagle.training.uno_module import DraftAdapterModule
    from specserve_eagle.training.unroll import Unrolled


def uno_loss(module: DraftAdapterModule, target: Target, ids: Tensor, num_anchors: int, step: int = 0) -> Unrolled:
    """ids: [B, T] int64."""
    features, teacher = target.lesson(ids, module.reads, None)
    anchors = sample_anchors(ids, num_anchors, module.shape.num_proposed, step)
    certain = torch.ones((), device=ids.device)
    noise = module.noise(ids, len(anchors), step)
    places = enumerate(noise_logits(module, target, features, anchors, noise), 1)
    learnt = (match((logits,), teacher.at(anchors + place)) for place, logits in places)
    return weighted((Match(torch.zeros_like(certain), certain, certain), *learnt))


def uno_logits(
    module: DraftAdapterModule, target: Target, features: Features, ids: Tensor, num_steps: int
) -> Iterator[Tensor]:
    """Of every place up to num_steps <= K the logits [B, N, V], N = T - K - 1: those at [:, p] draft token
    p + place + 2 of the text, with random tokens from p + 2 on; see `unrolled_logits`."""
    anchors = 1 + torch.arange(ids.shape[1] - module.shape.num_proposed - 1, device=ids.device)
    yield features.logits[:, anchors]
    if num_steps == 1:
        return
    noise = module.noise(ids, len(anchors))[:, :, : num_steps - 1]
    slices = [slice(at, at + ANCHORS_AT_ONCE) for at in range(0, len(anchors), ANCHORS_AT_ONCE)]
    with torch.autocast(ids.device.type, enabled=False):
        parts = [noise_states(module, target.decoder, features, anchors[some], noise[:, some]) for some in slices]
    yield from place_logits(target.decoder, torch.cat(parts, 1))
