"""Mixtures of experts: each expert's maps over the rows that are routed to it, in tiles of the kernel set.

A row's bits do not depend on how many rows its experts have: their products take any rows alike, and what the experts
of a row give is added in the order of its slots, in float32, and rounded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.api.models import Projection
from specserve_transformers.activations import SafeActivation
from specserve_transformers.linears import tiles_of
from specserve_transformers.row_safe import RowSafe

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import KernelSet


class Expert(NamedTuple):
    """The two products of one expert."""

    up: Projection
    down: Projection


def packed(kernels: KernelSet, weight: Tensor, bias: Tensor | None) -> Projection:
    made = Projection("expert", weight.contiguous(), None if bias is None else bias.contiguous(), kernels.linear)
    made.finalize(kernels)
    return made


class RowExperts:
    """`specserve_transformers.interface.ExpertsCall` of one module, whose weights it packs and frees."""

    def __init__(self, module: Any, kernels: KernelSet) -> None:
        self.kernels, self.mode = kernels, RowSafe()
        first = "gate_up_proj" if module.has_gate else "up_proj"
        ups, downs = expert_maps(module, first), expert_maps(module, "down_proj")
        self.experts = [
            Expert(packed(kernels, *up), packed(kernels, *down)) for up, down in zip(ups, downs, strict=True)
        ]
        for name in (first, "down_proj"):
            for part in (name, f"{name}_bias"):
                if part in module._parameters:
                    module._parameters[part] = None
        if isinstance(getattr(module, "act_fn", None), torch.nn.Module):
            module.act_fn = SafeActivation(module.act_fn)

    def __call__(self, module: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        slots = rows.new_zeros((*index.shape, rows.shape[1]), dtype=torch.float32)
        for number in torch.unique(index).tolist():
            if not 0 <= number < len(self.experts):
                continue  # what routers give for no expert
            places, slot = (index == number).nonzero(as_tuple=True)
            out = self.compute(module, self.experts[number], rows.index_select(0, places))
            slots[places, slot] = out.float() * weights[places, slot, None].float()
        total = slots[:, 0]
        for slot in range(1, index.shape[1]):
            total = total + slots[:, slot]
        return total.to(hidden.dtype).view(hidden.shape)

    def compute(self, module: Any, expert: Expert, x: Tensor) -> Tensor:
        tile = self.kernels.row_tile
        inner = tiles_of(lambda rows, _: expert.up(rows), x, tile)
        with torch.overrides._enable_torch_function(), self.mode:
            inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
        out = tiles_of(lambda rows, _: expert.down(rows), inner.contiguous(), tile)
        if getattr(module, "has_post_expert_norm", False):
            with torch.overrides._enable_torch_function(), self.mode:
                out = module.post_expert_norm(out)
        return out


def expert_maps(module: Any, name: str) -> list[tuple[Tensor, Tensor | None]]:
    """By expert the weight [out, in] and the bias."""
    weights: Tensor = module._parameters[name]
    biases: Tensor | None = module._parameters.get(f"{name}_bias") if module.has_bias else None
    return [
        (weight.t() if module.is_transposed else weight, None if biases is None else biases[number])
        for number, weight in enumerate(weights)
    ]
