"""What a draft model accepts by position: figures from text alone, without an engine.

Letters: B windows, T tokens of each, N positions that are drafted from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

from specserve_eagle.training.block_heads import BlockHeadModule
from specserve_eagle.training.blocks import block_logits
from specserve_eagle.training.standalone import DraftLlama, draft_logits
from specserve_eagle.training.teacher import teacher_of
from specserve_eagle.training.uno_loss import uno_logits
from specserve_eagle.training.uno_module import DraftAdapterModule
from specserve_eagle.training.unroll import at_step, unrolled_logits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve_eagle.training.export import Module
    from specserve_eagle.training.target import Target
    from specserve_eagle.training.teacher import Features, Teacher


class Acceptance(NamedTuple):
    """One figure."""

    figure: str
    """How it was measured."""
    survival: list[float]
    """By draft position: the share of drafts that are accepted up to there."""
    num_drafts: int

    @property
    def rates(self) -> list[float]:
        """By draft position: the share that is accepted of those whose earlier tokens were."""
        before = [1.0, *self.survival]
        return [now / was if was else 0.0 for now, was in zip(self.survival, before, strict=False)]

    @property
    def mean_length(self) -> float:
        """Tokens of a verify step, the bonus token included."""
        return 1.0 + sum(self.survival)


class Sampling(NamedTuple):
    """How drafts are made."""

    num_steps: int = 3
    temperature: float = 0.0
    """0 is greedy."""


@torch.no_grad()
def teacher_forced(module: Module, target: Target, windows: Tensor, sampling: Sampling, batch: int = 8) -> Acceptance:
    """Agreement with the target on the text itself: every position of the windows [windows, T] is drafted from, and
    each step reads the text's token, whether or not it was drafted.

    Greedy: the share on which both would choose the same tokens. Otherwise 1 - the total variation between both
    distributions, what drafts are accepted with that share the verifier's noise. Text that the target would not write
    itself makes both differ from what is accepted while it generates.
    """
    totals, num_drafts = torch.zeros(sampling.num_steps, dtype=torch.float64), 0
    windows = windows.to(target.model.device)
    for begin in range(0, len(windows), batch):
        ids = windows[begin : begin + batch]
        survival: Tensor | float = 1.0
        for step, accepted in enumerate(accepted_by_step(module, target, ids, sampling)):
            survival = accepted * survival
            totals[step] += survival.double().sum().cpu()
        num_drafts += accepted.numel()
    return Acceptance("teacher-forced", (totals / num_drafts).tolist(), num_drafts)


def accepted_by_step(module: Module, target: Target, ids: Tensor, sampling: Sampling) -> Iterator[Tensor]:
    """ids: [B, T]; of every step [B, N], the probability that its draft token is accepted."""
    features = target.features(ids, layers_read(module))
    draft_ids = None if isinstance(module, DraftLlama) else module.draft_ids
    teacher = teacher_of(features.logits, draft_ids, sampling.temperature or 1.0)
    for step, logits in enumerate(step_logits(module, target, features, ids, sampling.num_steps)):
        wanted = at_step(teacher, step, logits.shape[1])
        yield acceptance(logits.float(), wanted, sampling)


def layers_read(module: Module) -> tuple[int, ...]:
    """The hidden states of the target that it needs; see `Features`."""
    if isinstance(module, DraftLlama):
        return ()
    if isinstance(module, DraftAdapterModule):
        return module.reads
    return module.shape.reads if isinstance(module, BlockHeadModule) else module.layers


def acceptance(logits: Tensor, wanted: Teacher, sampling: Sampling) -> Tensor:
    if sampling.temperature == 0.0:
        return (logits.argmax(-1) == wanted.best).float()
    return torch.minimum((logits / sampling.temperature).softmax(-1), wanted.probabilities).sum(-1)


def step_logits(module: Module, target: Target, features: Features, ids: Tensor, num_steps: int) -> Iterator[Tensor]:
    """See `unrolled_logits`; a stand-alone model reads the same text at every step, and a block has all of them."""
    if isinstance(module, DraftAdapterModule):
        yield from uno_logits(module, target, features, ids, num_steps)
        return
    if isinstance(module, BlockHeadModule):
        yield from block_logits(module, target, features, ids, num_steps)
        return
    if not isinstance(module, DraftLlama):
        yield from unrolled_logits(module, target, features, ids, num_steps)
        return
    logits, N = draft_logits(module, target, ids), ids.shape[1] - num_steps - 1
    for step in range(num_steps):
        yield logits[:, 1 + step : 1 + step + N]
