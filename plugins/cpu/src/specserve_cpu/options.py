"""The options of the plugin."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from specserve.api import ConfigError

AUTO: Final = "auto"
Weights = Literal["auto", "int8", "int8-g64", "int4"]
Inputs = Literal["auto", "int8", "float"]
KeysValues = Literal["auto", "int8"]

WHOLE_ROW = 1 << 30
GROUP_SIZES: dict[Weights, int | None] = {"auto": None, "int8": WHOLE_ROW, "int8-g64": 64, "int4": 32}
"""Inputs that share a scale; None where weights are not quantised."""


class CpuOptions(msgspec.Struct, frozen=True, kw_only=True):
    instruction_set: str = AUTO
    """auto is the fastest that the processor supports of amx, avx512_bf16, avx512_vnni, avx512, avx2_vnni, avx2,
    neon_bf16, neon_i8mm, neon_dot, neon or portable. Results differ between them in their last bits."""
    weights: Weights = AUTO
    """How weights are kept. auto is the model's dtype. int8 is 8 bits with a scale for each output, int8-g64 with a
    scale for each output and 64 inputs: half the memory to read, with other results. int4 is 4 bits with a scale and
    an offset for each output and 32 inputs."""
    activations: Inputs = AUTO
    """What quantised weights are multiplied by. float is inputs in the model's dtype. int8 is inputs of 8 bits with a
    scale for each token and group of inputs that has one: faster arithmetic, with other results. auto is int8 for
    weights of fewer than 8 bits, and for checkpoints that are made for it; else float."""
    kv: KeysValues = AUTO
    """How keys and values are kept in the KV cache. auto is the model's dtype. int8 is 8 bits with a scale for each
    token and head: room for about twice as many tokens, with other results."""

    def __post_init__(self) -> None:
        if self.activations == "int8" and self.weights == AUTO:
            raise ConfigError(
                f"cpu.activations: only inputs of 8-bit weights can have 8 bits; got {self.activations} with "
                "cpu.weights=auto. Set cpu.weights to int8 or int8-g64 as well, or leave cpu.activations at auto."
            )
