"""Chooses the backend of each phase: the option's, or the best that fits. A refusal gives every reason at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from specserve.api import PHASES, ConfigError
from specserve.api.attention import best_fit, misfits, none_fits, unknown
from specserve_hybrid_attn.factory import HybridFactory
from specserve_hybrid_attn.options import AUTO

if TYPE_CHECKING:
    from collections.abc import Mapping

    from specserve.api import AttentionFactory, AttentionNeeds, Phase
    from specserve_hybrid_attn.options import HybridOptions

ALIASES: tuple[Phase, ...] = ("prefill", "decode")
"""Phases that the option `verify` may name instead of a backend."""


def choose(
    options: HybridOptions, available: Mapping[str, AttentionFactory], needs: AttentionNeeds
) -> AttentionFactory:
    """Raises ConfigError with every reason against every phase's choice."""
    names = names_by_phase(options, available, needs)
    problems = [
        problem
        for phase in needs.phases
        for problem in problems_of(phase, names[phase], available, needs_in(phase, options, needs))
    ]
    if problems:
        raise ConfigError(
            f"hybrid_attn cannot serve this configuration: {'; '.join(dict.fromkeys(problems))}. "
            "Choose with --set hybrid_attn.prefill, .decode and .verify, or leave them at auto."
        )
    if needs.phases == ("decode",):  # a draft model
        return available[names["decode"]]
    phase: Phase = "verify" if needs.drafts else "decode"
    return HybridFactory(available[names["prefill"]], available[names[phase]], phase)


def needs_in(phase: Phase, options: HybridOptions, needs: AttentionNeeds) -> AttentionNeeds:
    """A drafter reads the target's keys as generated positions do: prompts need nothing for it, unless their backend
    verifies as well."""
    if phase != "prefill" or options.verify == "prefill":
        return needs
    return msgspec.structs.replace(needs, attend_only=False)


def names_by_phase(
    options: HybridOptions, available: Mapping[str, AttentionFactory], needs: AttentionNeeds
) -> dict[Phase, str]:
    """The backend of every phase; `auto` where none fits."""
    options_by_phase: dict[Phase, str] = {
        "prefill": options.prefill,
        "decode": options.decode,
        "verify": options.verify,
    }
    names: dict[Phase, str] = {}
    for phase in PHASES:
        name = options_by_phase[phase]
        if phase == "verify" and name in ALIASES:
            name = names[name]
        elif name == AUTO:
            best = best_fit(available, needs_in(phase, options, needs), (phase,))
            name = AUTO if best is None else best.name
        names[phase] = name
    return names


def problems_of(phase: Phase, name: str, available: Mapping[str, AttentionFactory], needs: AttentionNeeds) -> list[str]:
    if name == AUTO:
        return [none_fits(available, needs)]
    if name not in available:
        return [f"{phase}: {unknown(name, available)}"]
    reasons = misfits(available[name].capabilities, needs)
    return [f"{phase}={name}: {', '.join(reasons)}"] if reasons else []
