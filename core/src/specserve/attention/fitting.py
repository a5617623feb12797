"""Whether an attention backend fits a configuration, and which fits best. Only their stated capabilities count."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specserve_checks.nearest import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from specserve.protocols import AttentionCapabilities, AttentionFactory, AttentionNeeds, KVLayout, Phase


def misfits(can: AttentionCapabilities, needs: AttentionNeeds) -> list[str]:
    """Every reason why such a backend cannot serve; empty when it can."""
    checks = (
        ("device", needs.device, can.devices),
        ("dtype", needs.dtype, can.dtypes),
        ("block size", needs.block_size, can.block_sizes),
    )
    reasons = [
        f"{what} {got} is not among its {', '.join(map(str, allowed)) or '(none)'}"
        for what, got, allowed in checks
        if got not in allowed
    ]
    if can.missing:
        reasons.insert(0, can.missing)
    multiple = can.head_bytes.get(needs.device, 1)
    most = max(needs.head_dims)
    for head_bytes in (needs.head_bytes * size // needs.head_dim for size in needs.head_dims):
        if head_bytes % multiple:
            reasons.append(f"the model's heads of {head_bytes} bytes are no multiple of its {multiple}")
    if can.max_head_dim is not None and most > can.max_head_dim:
        reasons.append(f"the model's heads of {most} numbers are more than its {can.max_head_dim}")
    if layout_for(can, needs) is None:
        names = ", ".join(layout.name for layout in can.kv_layouts) or "(none that its parts share)"
        reasons.append(
            f"blocks of {needs.block_size} and heads of {' and '.join(map(str, needs.head_dims))} fit none of its KV "
            f"layouts: {names}"
        )
    if needs.soft_caps and not can.soft_caps:
        reasons.append("it does not cap scores, as the model's layers do")
    if needs.sinks and not can.sinks:
        reasons.append("it has no attention sinks, as the model's layers have")
    if not can.draft_layers and needs.phases == ("decode",) and (needs.first_key or needs.trees):
        reasons.append("it does not serve draft models that read hidden states or draft trees")
    if needs.attend_only and not can.attend_only:
        reasons.append("it cannot read keys and values without writing some, as a drafter's layers here do")
    if not can.ragged:
        reasons.append("it takes one query length per batch, and requests here have different ones")
    return reasons


def layout_for(can: AttentionCapabilities, needs: AttentionNeeds) -> KVLayout | None:
    """The layout of keys and values in the cache: the first of the backend's layouts that fits all layers."""
    for layout in can.kv_layouts:
        if all(layout.fits(needs.block_size, size) for size in needs.head_dims):
            return layout
    return None


def unknown(name: str, offers: Mapping[str, AttentionFactory]) -> str:
    return f"no backend is named {name!r} (there are {', '.join(offers)}{did_you_mean(name, offers)})"


def none_fits(offers: Mapping[str, AttentionFactory], needs: AttentionNeeds) -> str:
    """The error where no backend fits; it lists every reason against every backend."""
    every = (f"{name}: {', '.join(misfits(each.capabilities, needs))}" for name, each in offers.items())
    return f"no backend fits ({'; '.join(every)})"


def cuts_drafts(can: AttentionCapabilities, needs: AttentionNeeds) -> bool:
    """Whether draft trees must be cut to chains."""
    return needs.trees and not can.tree_mask


def best_fit(
    offers: Mapping[str, AttentionFactory], needs: AttentionNeeds, phases: Collection[Phase]
) -> AttentionFactory | None:
    """The backend that fits and, in this order of preference, loses no capability, was made for these phases and copies
    no keys; the first offered of equals. None when none fits."""

    def merit(factory: AttentionFactory) -> tuple[bool, bool, bool, int, bool]:
        can = factory.capabilities
        branches = phases == ("prefill",) or not cuts_drafts(can, needs)
        is_recorded = phases == ("prefill",) or needs.graphs != "full" or "full" in can.graphs
        return can.row_invariant, branches, is_recorded, sum(phase in can.made_for for phase in phases), can.paged

    fitting = [factory for factory in offers.values() if not misfits(factory.capabilities, needs)]
    return max(fitting, key=merit, default=None)
