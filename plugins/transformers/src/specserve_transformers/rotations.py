"""What follows from a position alone, such as the angles of a rotation: computed once for every position.

torch's sine of a number depends, in its last bits, on where the number stands in a call. A rotation that goes by the
length of the sequence is fixed by the context length that is served: keys that are cached must not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

    from specserve_transformers.probe import Probe

Key = tuple[Any, ...]


def gives_positions(found: Probe, path: str, module: nn.Module) -> bool:
    """Without parameters; called with the positions and perhaps a tensor whose numbers it does not read; gives tensors
    [1, T, ...]."""
    calls = found.calls_of(path)
    if not calls or any(True for _ in module.parameters()) or any(True for _ in module.children()):
        return False
    for call in calls:
        given = (*call.args, *call.kwargs.values())
        outs = call.out if isinstance(call.out, tuple) else (call.out,)
        if not any(each is found.positions for each in given) or not all(map(is_table, outs)):
            return False
    return True


def is_table(out: Any) -> bool:
    return isinstance(out, torch.Tensor) and out.dim() == 3 and out.shape[0] == 1


class PositionTable(nn.Module):
    """The module's answers for positions below `length`, and those of the step's positions."""

    def __init__(self, module: nn.Module, length: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.module, self.length, self.device = module, length, device
        self.like = torch.zeros((1, 1, 1), dtype=dtype, device=device)
        self.tables: dict[Key, Any] = {}
        self.positions: Tensor | None = None
        self.given: dict[Key, Any] = {}
        """Of the step whose positions these are."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with torch._C.DisableTorchFunction():
            given = (*args, *kwargs.values())
            positions = next(each for each in given if is_positions(each))
            key: Key = tuple(each for each in given if not isinstance(each, torch.Tensor))
            if positions is not self.positions:
                self.positions, self.given = positions, {}
            if key not in self.given:
                if key not in self.tables:
                    self.tables[key] = self.of_every_position(args, kwargs)
                self.given[key] = rows_of(self.tables[key], positions[0])
            return self.given[key]

    def of_every_position(self, args: tuple[Any, ...], kwargs: dict[str, Any], dtype: torch.dtype | None = None) -> Any:
        """dtype: None for the model's."""
        every = torch.arange(self.length, device=self.device)[None]
        like = self.like if dtype is None else self.like.to(dtype)

        def instead(each: Any) -> Any:
            if not isinstance(each, torch.Tensor):
                return each
            return every if is_positions(each) else like

        return self.module(*map(instead, args), **{name: instead(each) for name, each in kwargs.items()})


def is_positions(each: Any) -> bool:
    return isinstance(each, torch.Tensor) and each.dtype == torch.int64


def rows_of(table: Any, positions: Tensor) -> Any:
    if isinstance(table, tuple):
        return tuple(each[0].index_select(0, positions)[None] for each in table)
    return table[0].index_select(0, positions)[None]
