"""The options of hybrid_attn."""

from __future__ import annotations

import msgspec

AUTO = "auto"


class HybridOptions(msgspec.Struct, frozen=True, kw_only=True):
    prefill: str = AUTO
    """The backend of prompt positions, by name; auto takes the best that fits."""
    decode: str = AUTO
    """The backend of generated positions where no drafter is enabled, by name; auto takes the best that fits."""
    verify: str = AUTO
    """The backend of generated positions where a drafter is enabled, with or without a draft in the step: prefill
    and decode mean the same as that phase, else by name; auto takes the best that fits."""
