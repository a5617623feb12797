"""How near a head's logits are to the target's distribution: the loss, its gradient, and what would be accepted.

All is found in one reading of the logits, a few rows at a time, which stay in the processor's cache: of a vocabulary
that is large, reading and writing logits takes longer than computing them. Letters: B windows, N positions, D draft
vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.autograd import Function

from specserve_eagle.training.teacher import ROWS_AT_ONCE

if TYPE_CHECKING:
    from torch import Tensor
    from torch.autograd.function import FunctionCtx

    from specserve_eagle.training.teacher import Teacher


class Match(NamedTuple):
    loss: Tensor
    """[], the mean cross-entropy over the positions, in nats."""
    agrees: Tensor
    """[B, N] bool: head and target have the same most likely token."""
    overlap: Tensor
    """[B, N]: 1 - the total variation between both distributions, what sampled drafts are accepted with."""


def match(terms: tuple[Tensor, ...], wanted: Teacher) -> Match:
    """terms: [B, N, D] each, whose sum the logits are."""
    return Match(*CrossEntropy.apply(wanted, *terms))  # type: ignore[no-untyped-call]


class CrossEntropy(Function):
    """The gradient is as large as the loss makes it, so that it is computed with the loss."""

    @staticmethod
    def forward(ctx: FunctionCtx, wanted: Teacher, *terms: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The parts of a `Match`."""
        flat = [term.flatten(0, -2) for term in terms]
        wanted_rows, best = wanted.probabilities.flatten(0, -2), wanted.best.flatten()
        gradient = torch.empty_like(flat[0])
        count, shape = len(gradient), wanted.best.shape
        losses, overlap = (torch.empty(count, device=gradient.device) for _ in range(2))
        agrees = torch.empty(count, dtype=torch.bool, device=gradient.device)
        for begin in range(0, count, ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            p, x = wanted_rows[rows].float(), flat[0][rows].float()
            for term in flat[1:]:
                x = x + term[rows]
            agrees[rows] = x.argmax(-1) == best[rows]
            x = x - x.logsumexp(-1, keepdim=True)
            losses[rows] = -(p * x).sum(-1)
            q = x.exp_()
            overlap[rows] = torch.minimum(q, p).sum(-1)
            gradient[rows] = q.mul_(p.sum(-1, keepdim=True)).sub_(p).div_(count)
        ctx.save_for_backward(gradient.view_as(terms[0]))
        agrees, overlap = agrees.view(shape), overlap.view(shape)
        ctx.mark_non_differentiable(agrees, overlap)
        return losses.mean(), agrees, overlap

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors  # type: ignore[attr-defined]
        needed = ctx.needs_input_grad[1:]  # type: ignore[attr-defined]
        given = gradient * grads[0]
        return (None, *(given if each else None for each in needed))
