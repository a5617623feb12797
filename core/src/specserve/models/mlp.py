"""The MLP of a layer: two linear maps around an activation, or a choice of such experts for every row.

Rows map to rows. Knows nothing of adapters but which rows they are for. Letters: T rows, H hidden size, E experts,
k experts of a row.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import torch

from specserve.batch.lora_plan import LoraPlan, Segment
from specserve.models.projection import BatchRows
from specserve.models.routing import choose_experts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from specserve.models.config import ModelConfig
    from specserve.models.experts_config import ExpertsConfig
    from specserve.models.projection import Projection
    from specserve.protocols import Combine, KernelSet


@dataclass(frozen=True, slots=True)
class DenseMlp:
    """A gated MLP (Shazeer, 2020)."""

    gate_up_proj: Projection
    down_proj: Projection
    activate: Callable[[Tensor], Tensor]
    """[T, 2n] -> [T, n]: of the gates, times the ups."""

    def __call__(self, x: Tensor, at: BatchRows) -> Tensor:
        """x: [T, H] -> [T, H], a fresh tensor."""
        return self.down_proj(self.activate(self.gate_up_proj(x, at)), at)


@dataclass(frozen=True, slots=True)
class SharedExpert:
    """An MLP that every row passes beside its experts."""

    mlp: DenseMlp
    gate: Projection | None
    """[1, H]: what the MLP gives is multiplied by its sigmoid."""
    kernels: KernelSet

    def __call__(self, x: Tensor, at: BatchRows) -> Tensor:
        """x: [T, H] -> [T, H], a fresh tensor."""
        out = self.mlp(x, at)
        return out if self.gate is None else self.kernels.gate(out, self.gate(x, at))


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """Every row goes through its own few of the experts."""

    config: ExpertsConfig
    router: Projection
    """[E, H]."""
    experts: tuple[DenseMlp, ...]
    kernels: KernelSet
    combine: Combine | None = None
    """From what this process's parts of the experts add up to, [T, H], to the sum of all parts."""
    choice_bias: Tensor | None = None
    """[E] float32: added to the experts' scores for the choice alone."""
    shared: SharedExpert | None = None
    scales: Tensor | None = None
    """[E] float32: of the experts' weights."""

    def __call__(self, x: Tensor, at: BatchRows, routed: Tensor | None = None) -> Tensor:
        """x: [T, H] -> [T, H], a fresh tensor. routed: [T, H], what the router reads where that is not
        x. With kernels that take tiles an expert's rows are a tile of their own, so that a row's bits do not depend on
        who else is given to its experts."""
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError("which experts a step calls is decided on the host, which a graph does not replay")
        logits = self.router(x if routed is None else routed, at)
        asked = logits, self.config, self.choice_bias
        chosen, weights = self.kernels.choose_experts(*asked) or choose_experts(*asked)
        if self.scales is not None:
            weights = weights * self.scales[chosen]
        given = rows_by_expert(chosen.tolist())
        outs = x.new_empty((chosen.shape[1], *x.shape))
        for expert, slots in given.items():
            rows = list(slots)
            index = torch.tensor(rows, device=x.device)
            padded = x.new_zeros(x.shape) if self.kernels.row_tile else x.new_empty((len(rows), x.shape[1]))
            padded[: len(rows)] = x.index_select(0, index)
            out = self.experts[expert](padded, of_rows(at, rows))
            outs[torch.tensor(list(slots.values()), device=x.device), index] = out[: len(rows)]
        total = weighted_sum(outs, weights)
        if self.shared is not None:
            total += self.shared(x, at)
        return total if self.combine is None else self.combine(total)


class NormsOfBoth(NamedTuple):
    """[H] each: of what the MLP and the experts read and give."""

    mlp_input: Tensor
    mlp_output: Tensor
    experts_input: Tensor
    experts_output: Tensor
    router_input: Tensor
    """Float32."""
    eps: float


@dataclass(frozen=True, slots=True)
class MlpBesideExperts:
    """Every row goes through an MLP and through its own few of the experts; both are normed and added, as in Gemma 4.
    The layer has no norm before it."""

    mlp: DenseMlp
    experts: MixtureOfExperts
    norms: NormsOfBoth
    router_scale: Tensor
    """[H]: of what the router reads, beside H^-0.5."""
    kernels: KernelSet

    def __call__(self, x: Tensor, at: BatchRows) -> Tensor:
        """x: [T, H] -> [T, H], a fresh tensor."""
        norms = self.norms
        of_mlp = self.mlp(self.normed(x, norms.mlp_input), at)
        routed = self.normed(x, norms.router_input) * self.router_scale * x.shape[1] ** -0.5
        of_experts = self.experts(self.normed(x, norms.experts_input), at, routed)
        return self.normed(of_mlp, norms.mlp_output) + self.normed(of_experts, norms.experts_output)

    def normed(self, x: Tensor, weight: Tensor) -> Tensor:
        return self.kernels.rms_norm(x, weight, self.norms.eps)


Mlp: TypeAlias = DenseMlp | MixtureOfExperts | MlpBesideExperts


def dense_mlp(mlp: Mlp) -> DenseMlp:
    """For code that is not asked for layers with experts."""
    assert isinstance(mlp, DenseMlp), "the layer has experts"
    return mlp


def activation_of(kernels: KernelSet, config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """[T, 2n] -> [T, n]: of the gates, times the ups."""
    if config.activation == "clamped_swiglu":
        return partial(kernels.clamped_swiglu, gain=config.clamp.gain, limit=config.clamp.limit)
    return kernels.silu_and_multiply if config.activation == "silu" else kernels.gelu_and_multiply


def rows_by_expert(chosen: Sequence[Sequence[int]]) -> dict[int, dict[int, int]]:
    """chosen: [T][k] experts. By expert that any row goes to: its rows, ascending, and as which of the row's k."""
    given: dict[int, dict[int, int]] = {}
    for row, experts in enumerate(chosen):
        for slot, expert in enumerate(experts):
            given.setdefault(expert, {})[row] = slot
    return given


def weighted_sum(outs: Tensor, weights: Tensor) -> Tensor:
    """outs: [k, T, H], weights: [T, k] float32 -> [T, H] in the dtype of outs: added in float32 in order, rounded once.
    Products and sums are rounded each, so that every kernel set can have these bits."""
    total = outs[0].float() * weights[:, 0, None]
    for slot in range(1, len(outs)):
        total += outs[slot].float() * weights[:, slot, None]
    return total.to(outs.dtype)


def of_rows(at: BatchRows, rows: Sequence[int]) -> BatchRows:
    """Where some rows of a tile are, ascending, as rows of their own."""
    here = slice(0, len(rows))
    if at.lora is None:
        return BatchRows(here, None)
    cuts = [
        Segment(bisect_left(rows, begin), bisect_left(rows, end), adapter)
        for begin, end, adapter in at.lora.adapted(at.rows)
    ]
    return BatchRows(here, LoraPlan([cut for cut in cuts if cut.end > cut.begin], at.lora.rank))
