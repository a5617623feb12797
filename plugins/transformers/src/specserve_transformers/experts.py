"""Mixtures of experts: each expert's maps over the rows that are routed to it, in tiles of the kernel set.

A row's bits do not depend on how many rows its experts have: their products take any rows alike, and what the experts
of a row give is added in the order of its slots, in float32, and rounded once.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from specserve.api.batch import LoraPlan, Segment
from specserve.api.models import NO_BATCH, BatchRows, Projection, StoredAs, WholeMap
from specserve_transformers.activations import SafeActivation
from specserve_transformers.linears import tiles_of
from specserve_transformers.row_safe import RowSafe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve.api import KernelSet
    from specserve_transformers.step import Step


class Expert(NamedTuple):
    """The two products of one expert."""

    up: Projection
    down: Projection


class RowExperts:
    """`specserve_transformers.interface.ExpertsCall` of one module, whose weights it takes. `step`: whose rows its own
    are, so that adapters apply to them; None: they are others."""

    def __init__(self, path: str, module: Any, kernels: KernelSet, step: Step | None) -> None:
        self.kernels, self.step, self.mode = kernels, step, RowSafe()
        first = "gate_up_proj" if module.has_gate else "up_proj"
        ups, downs = (list(expert_maps(path, module, name, kernels)) for name in (first, "down_proj"))
        self.experts = list(map(Expert, ups, downs))
        for name in (first, "down_proj"):
            for part in (name, f"{name}_bias"):
                if part in module._parameters:
                    module._parameters[part] = None
        if isinstance(getattr(module, "act_fn", None), torch.nn.Module):
            module.act_fn = SafeActivation(module.act_fn)

    def __call__(self, module: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1])
        slots = rows.new_zeros((*index.shape, rows.shape[1]), dtype=torch.float32)
        lora = None if self.step is None else self.step.at.lora
        for number in torch.unique(index).tolist():
            if not 0 <= number < len(self.experts):
                continue  # what routers give for no expert
            places, slot = (index == number).nonzero(as_tuple=True)
            own = None if lora is None else plan_of(lora, places.tolist())
            out = self.compute(module, self.experts[number], rows.index_select(0, places), own)
            slots[places, slot] = out.float() * weights[places, slot, None].float()
        total = slots[:, 0]
        for slot in range(1, index.shape[1]):
            total = total + slots[:, slot]
        return total.to(hidden.dtype).view(hidden.shape)

    def compute(self, module: Any, expert: Expert, x: Tensor, lora: LoraPlan | None) -> Tensor:
        """lora: of these rows."""
        tile = self.kernels.row_tile

        def at(place: slice) -> BatchRows:
            return NO_BATCH if lora is None else BatchRows(place, lora)

        inner = tiles_of(lambda rows, place: expert.up(rows, at(place)), x, tile)
        with torch.overrides._enable_torch_function(), self.mode:
            inner = module._apply_gate(inner) if module.has_gate else module.act_fn(inner)
        out = tiles_of(lambda rows, place: expert.down(rows, at(place)), inner.contiguous(), tile)
        if getattr(module, "has_post_expert_norm", False):
            with torch.overrides._enable_torch_function(), self.mode:
                out = module.post_expert_norm(out)
        return out


def expert_maps(path: str, module: Any, name: str, kernels: KernelSet) -> Iterator[Projection]:
    """Of every expert, the map that a parameter [E, out, in], or [E, in, out], holds. path: the module's."""
    weights: Tensor = module._parameters[name]
    biases: Tensor | None = module._parameters.get(f"{name}_bias") if module.has_bias else None
    key = f"{path}.{name}"
    for number, stored in enumerate(weights):
        weight = (stored.t() if module.is_transposed else stored).contiguous()
        outs, ins = weight.shape
        parts = {key: slice(0, outs)}
        whole = WholeMap(ins, parts, stored={key: StoredAs(key, of_stack=number)})
        bias = None if biases is None else biases[number].contiguous()
        yield Projection(f"{path}.{number}.{name}", weight, bias, kernels.linear, parts, whole)


def plan_of(plan: LoraPlan, rows: list[int]) -> LoraPlan:
    """rows: some of the plan's, ascending. The plan of these alone."""
    cuts = (
        Segment(bisect_left(rows, segment.begin), bisect_left(rows, segment.end), segment.adapter)
        for segment in plan.segments
    )
    return LoraPlan([cut for cut in cuts if cut.end > cut.begin], plan.rank)
