"""The factory of a composed backend, whose capabilities follow from those of its two members."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any, TypeVar

from specserve.api import AttentionCapabilities
from specserve_hybrid_attn.attention import HybridAttention

if TYPE_CHECKING:
    import torch

    from specserve.api import AttentionBackend, AttentionFactory, AttentionSpec


T = TypeVar("T")


class HybridFactory:
    """`specserve.api.AttentionFactory`. `phase`: that of generated positions, decode or verify."""

    def __init__(self, prompt: AttentionFactory, generated: AttentionFactory, phase: str) -> None:
        self.prompt, self.generated = prompt, generated
        self.name = f"hybrid(prefill={prompt.name}, {phase}={generated.name})"
        self.capabilities = combined(prompt.capabilities, generated.capabilities)

    def build(self, spec: AttentionSpec, cache: Any, device: torch.device, dtype: torch.dtype) -> AttentionBackend:
        """The same backend twice is not composed: batches are not split then, and kernel sets may fuse it."""
        prompt = self.prompt.build(spec, cache, device, dtype)
        if self.prompt is self.generated:
            return prompt
        return HybridAttention(self.name, prompt, self.generated.build(spec, cache, device, dtype))


def combined(prompt: AttentionCapabilities, generated: AttentionCapabilities) -> AttentionCapabilities:
    """What both can do; of `generated` alone tree masks, since draft tokens are always at generated positions, graphs,
    since it serves decode and verify steps, and `attend_only`, since drafters read the target's keys as these do."""
    devices = intersection(prompt.devices, generated.devices)
    return AttentionCapabilities(
        paged=prompt.paged and generated.paged,
        tree_mask=generated.tree_mask,
        ragged=prompt.ragged and generated.ragged,
        row_invariant=prompt.row_invariant and generated.row_invariant,
        block_sizes=intersection(prompt.block_sizes, generated.block_sizes),
        devices=devices,
        dtypes=intersection(prompt.dtypes, generated.dtypes),
        head_bytes={d: lcm(prompt.head_bytes.get(d, 1), generated.head_bytes.get(d, 1)) for d in devices},
        max_head_dim=least(prompt.max_head_dim, generated.max_head_dim),
        kv_layouts=intersection(prompt.kv_layouts, generated.kv_layouts),
        soft_caps=prompt.soft_caps and generated.soft_caps,
        sinks=prompt.sinks and generated.sinks,
        draft_layers=prompt.draft_layers and generated.draft_layers,
        attend_only=generated.attend_only,
        graphs=generated.graphs,
        asked_for=tuple(dict.fromkeys(prompt.asked_for + generated.asked_for)),
        missing="; ".join(dict.fromkeys(filter(None, (prompt.missing, generated.missing)))),
    )


def least(one: int | None, other: int | None) -> int | None:
    """None: no limit."""
    return min((limit for limit in (one, other) if limit is not None), default=None)


def intersection(one: tuple[T, ...], other: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(each for each in one if each in other)
