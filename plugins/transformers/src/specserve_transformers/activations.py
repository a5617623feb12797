"""Activations, and MLPs that are gated by one: recognised by what they call and compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
import torch.nn.functional as F
from torch import nn

from specserve_transformers.linears import Leaf, tiles_of
from specserve_transformers.row_safe import in_vectors

if TYPE_CHECKING:
    from torch import Tensor

    from specserve.api import KernelSet
    from specserve_transformers.linears import SharedProduct
    from specserve_transformers.probe import Probe

Gate = Literal["silu", "gelu_tanh"]


class SafeActivation(Leaf):
    """An element-wise module, called on whole vectors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.function = module

    def __call__(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            return in_vectors(self.function, x)


def is_activation(found: Probe, path: str, module: nn.Module) -> bool:
    """Without parameters or children, of one tensor, and with element-wise calls alone."""
    if any(True for _ in module.parameters()) or any(True for _ in module.children()):
        return False
    kinds = found.functions.get(path, {})
    calls = found.calls_of(path)
    one_tensor = all(len(call.args) == 1 and not call.kwargs for call in calls)
    moved = any(name in MOVING for name in kinds)
    same = all(getattr(call.out, "shape", None) == call.args[0].shape for call in calls) if one_tensor else False
    return (
        bool(calls)
        and same
        and not moved
        and set(kinds.values()) == {"exact", "elementwise"} - ({"exact"} if "exact" not in kinds.values() else set())
    )


MOVING = ("cat", "chunk", "split", "roll", "flip", "view", "reshape", "transpose", "getitem", "pad")


def gate_of(module: nn.Module) -> Gate | None:
    """Which of the kernel sets' gates the activation is, in float64."""
    x = torch.linspace(-12, 12, 4001, dtype=torch.float64)
    try:
        out = module(x)
    except Exception:
        return None
    if torch.allclose(out, F.silu(x), rtol=1e-12, atol=1e-14):
        return "silu"
    return "gelu_tanh" if torch.allclose(out, F.gelu(x, approximate="tanh"), rtol=1e-9, atol=1e-12) else None


class GatedMlp(Leaf):
    """down(gate(first half) * second half), where both halves are one product of the input."""

    def __init__(self, gate_up: SharedProduct, down: nn.Module, gate: Gate, kernels: KernelSet) -> None:
        super().__init__()
        self.gate_up, self.down_proj, self.row_tile, self.gate = gate_up, down, kernels.row_tile, gate
        self.activate = kernels.silu_and_multiply if gate == "silu" else kernels.gelu_and_multiply

    def __call__(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            both = self.gate_up.product(x)
            both = both.view(-1, both.shape[-1])
            if self.row_tile is None:
                rows = self.activate(both)
            else:
                rows = tiles_of(lambda tile, _: self.activate(tile), both, self.row_tile)
            out: Tensor = self.down_proj(rows.view(*x.shape[:-1], rows.shape[-1]))
            return out
