"""What the device needs of a batch's rows. It is copied there when somebody first reads it: replayed steps never do.

T: rows.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


class DeviceRows(NamedTuple):
    """All [T] int64."""

    input_ids: Tensor
    positions: Tensor
    slots: Tensor


class RowTensors:
    """`host`: [3, T] int64, token ids, positions and slots in the host's memory."""

    __slots__ = ("device", "found", "host")

    def __init__(self, host: Tensor, device: torch.device) -> None:
        self.host, self.device = host, device
        self.found: DeviceRows | None = None

    @property
    def on_device(self) -> DeviceRows:
        if self.found is None:
            self.found = DeviceRows(*copy_to_device(self.host, self.device).unbind())
        return self.found


def on_host(values: Sequence[int]) -> Tensor:
    """Integers as an int64 tensor: in a third of the time that torch.tensor takes."""
    return torch.frombuffer(array("q", values), dtype=torch.int64) if values else torch.empty(0, dtype=torch.int64)


def to_device(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Integers as an int64 tensor on the device; on CUDA the copy is queued and the host does not wait.

    torch's pinned allocator records the stream of such a copy and reuses the buffer only after it, so any number may be
    in flight: a prompt's chunks are launched one after the other, and the host does not wait between them.
    """
    if device.type != "cuda":
        if values and isinstance(values[0], int):
            return on_host(cast("Sequence[int]", values))
        return torch.tensor(values, dtype=torch.int64)
    return torch.tensor(values, dtype=torch.int64, pin_memory=True).to(device, non_blocking=True)


def copy_to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor of the host on the device; on CUDA the copy is queued and the host does not wait."""
    return values if device.type != "cuda" else values.pin_memory().to(device, non_blocking=True)


def copy_into(target: Tensor, values: Tensor, device: torch.device) -> None:
    """Values of the host into memory of the device; on CUDA the copy is queued and the host does not wait."""
    if device.type == "cuda":
        target.copy_(values.pin_memory(), non_blocking=True)
    else:
        target.copy_(values)
