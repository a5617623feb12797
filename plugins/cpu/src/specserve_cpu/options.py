"""The options of the plugin."""

from __future__ import annotations

import msgspec

AUTO = "auto"


class CpuOptions(msgspec.Struct, frozen=True, kw_only=True):
    instruction_set: str = AUTO
    """auto is the fastest that the processor supports of amx, avx512_bf16, avx512, avx2 or portable. Results differ
    between them in their last bits."""
