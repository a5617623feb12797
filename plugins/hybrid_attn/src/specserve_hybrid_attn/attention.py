"""Two backends as one: prompt positions go to the first, generated positions to the second.

Both read and write the same cache. Prompt rows of a step are computed first: in a recomputation generated rows of the
same request attend to their keys, and prompt rows never attend to generated ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from specserve.api import Arithmetic, AttentionBackend
from specserve_hybrid_attn.phases import generated_part, is_generated_only, is_prompt_only, prompt_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor

    from specserve.api import LayerStates, Mixer, RecurrentMixer
    from specserve.api.attention import KVCache
    from specserve.api.batch import Batch, PrecedingTokens, StateRun


class SubPlan(NamedTuple):
    """A backend, the rows that it computes, and its plan for them."""

    backend: AttentionBackend
    rows: slice | torch.Tensor
    plan: Any


class HybridAttention(AttentionBackend):
    """`specserve.api.AttentionBackend`; every part of it is composed of the two members."""

    def __init__(self, name: str, prompt: AttentionBackend, generated: AttentionBackend) -> None:
        self.name, self.prompt, self.generated = name, prompt, generated

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.prompt.arithmetic.prompt, self.generated.arithmetic.generated)

    def backend_for(self, batch: Batch) -> AttentionBackend:
        if is_generated_only(batch):
            return self.generated.backend_for(batch)
        if is_prompt_only(batch):
            return self.prompt.backend_for(batch)
        return self

    @property
    def writable_cache(self) -> KVCache | None:
        caches = [getattr(member, "writable_cache", None) for member in (self.prompt, self.generated)]
        return caches[0] if caches[0] is caches[1] else None

    def graph_plan(self, padded: Batch, requests: int) -> None:
        """Decode and verify steps are recorded with the member that serves them: see `backend_for`."""

    def plan(self, batch: Batch) -> tuple[SubPlan, ...]:
        if is_generated_only(batch):
            return (SubPlan(self.generated, slice(None), self.generated.plan(batch)),)
        if is_prompt_only(batch):
            return (SubPlan(self.prompt, slice(None), self.prompt.plan(batch)),)
        parts = (self.prompt, prompt_part(batch)), (self.generated, generated_part(batch))
        return tuple(SubPlan(backend, part.rows, backend.plan(part.batch)) for backend, part in parts)

    def forward(self, layer: int, q: Tensor, k: Tensor, v: Tensor, plan: tuple[SubPlan, ...]) -> Tensor:
        out = q.new_empty(q.shape)
        for part in plan:
            rows = part.rows
            out[rows] = part.backend.forward(layer, q[rows], k[rows], v[rows], part.plan)
        return out

    def write(self, layer: int, k: Tensor, v: Tensor, batch: Batch) -> None:
        """Into the cache that both members share."""
        self.generated.write(layer, k, v, batch)

    def mix(self, mixer: Mixer, rows: Tensor, kept: Tensor, tokens: PrecedingTokens) -> Tensor:
        """Of layers without attention: no backend's concern."""
        return self.generated.mix(mixer, rows, kept, tokens)

    def mix_states(self, mixer: RecurrentMixer, rows: Tensor, layer: LayerStates, runs: Sequence[StateRun]) -> Tensor:
        """Of layers without attention: no backend's concern."""
        return self.generated.mix_states(mixer, rows, layer, runs)

    def attend(self, layer: int, q: Tensor, plan: tuple[SubPlan, ...]) -> Tensor:
        if len(plan) == 1:
            return plan[0].backend.attend(layer, q, plan[0].plan)
        out = q.new_empty(q.shape)
        for part in plan:
            out[part.rows] = part.backend.attend(layer, q[part.rows], part.plan)
        return out
