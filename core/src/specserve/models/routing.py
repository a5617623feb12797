"""The choice of experts in torch calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.models.experts_config import ExpertsConfig


def choose_experts(logits: Tensor, config: ExpertsConfig, choice_bias: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """logits: [T, E]; choice_bias: [E] float32 -> experts: [T, k] int64, weights: [T, k] float32. The rule is that of
    `ExpertsConfig`. Every sum has the order of its row, whatever the other rows."""
    if config.scores == "sigmoid":
        return by_sigmoids(logits, config, choice_bias)
    wide = logits.float()
    ordered, experts = wide.sort(dim=-1, descending=True, stable=True)  # topk promises nothing for equal ones
    top = ordered[:, : config.chosen]
    exps = torch.stack([(row - row[0]).exp() for row in (ordered if config.scores == "softmax" else top)])
    weights = exps[:, : config.chosen] / exps.sum(-1, keepdim=True)
    if config.renormalised:
        weights = weights / in_order(weights)
    if config.rounded:
        weights = weights.to(logits.dtype).float()
    return experts[:, : config.chosen], weights


def by_sigmoids(logits: Tensor, config: ExpertsConfig, choice_bias: Tensor | None) -> tuple[Tensor, Tensor]:
    def rounded(x: Tensor) -> Tensor:
        return x.to(logits.dtype).float() if config.rounded else x

    scores = rounded(torch.stack([row.sigmoid() for row in logits.float()]))
    wanted = scores if choice_bias is None else scores + choice_bias
    experts = wanted.sort(dim=-1, descending=True, stable=True).indices[:, : config.chosen]
    weights = scores.gather(1, experts)
    if config.renormalised:
        weights = rounded(weights / rounded(rounded(in_order(weights)) + config.added_to_sum))
    return experts, rounded(weights * config.weight_scale)


def in_order(weights: Tensor) -> Tensor:
    """[T, k] -> [T, 1]: the sum, from the first on."""
    total = weights[:, :1].clone()
    for slot in range(1, weights.shape[1]):
        total += weights[:, slot : slot + 1]
    return total
