"""What a user may choose."""

from __future__ import annotations

import msgspec

AUTO = "auto"


class CpuOptions(msgspec.Struct, frozen=True, kw_only=True):
    instruction_set: str = AUTO
    """auto takes the fastest that the processor has: amx, avx512_bf16, avx512, avx2 or portable. Each has bits of its
    own."""
