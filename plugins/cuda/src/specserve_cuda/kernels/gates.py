"""The gate of attention's output as a Triton kernel. Imports Triton."""
# mypy: disable-error-code="untyped-decorator"
# (triton ships no types)

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import triton
import triton.language as tl

from specserve_cuda.launch import Launch, blocks, dense

if TYPE_CHECKING:
    import torch
    from torch import Tensor

GATE_BLOCK = 1024


@triton.jit
def gate_kernel(
    x: tl.tensor,
    gates: tl.tensor,
    out: tl.tensor,
    size: tl.tensor,
    num_gates: tl.tensor,
    per_gate: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """out = x times the sigmoid of its gate, which is rounded before the product. Each gate is for `per_gate`
    neighbours of a row."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < size
    raw = tl.load(x + row * size + columns, mask=inside, other=0.0)
    gate = tl.load(gates + row * num_gates + columns // per_gate, mask=inside, other=0.0).to(tl.float32)
    opened = (1.0 / (1.0 + tl.exp(-gate))).to(raw.dtype).to(tl.float32)
    tl.store(out + row * size + columns, (raw.to(tl.float32) * opened).to(raw.dtype), mask=inside)


@cache
def launch_of(dtype: torch.dtype, size: int, num_gates: int) -> Launch:
    """For all rows of this type and these sizes, which a launch is specialised on."""
    return Launch(gate_kernel, {"BLOCK": GATE_BLOCK}, num_warps=4)


def gated(x: Tensor, gates: Tensor) -> Tensor:
    """x: [T, n]; gates: [T, m] -> [T, n]."""
    (num_rows, size), num_gates = x.shape, gates.shape[1]
    out = x.new_empty(x.shape)
    launch = launch_of(x.dtype, size, num_gates)
    launch(num_rows, blocks(size, GATE_BLOCK), dense(x), dense(gates), out, size, num_gates, size // num_gates)
    return out
