"""The layouts of cpu_paged's cache, written a second time: what a slot keeps of a head, and where it lies in panels.

`kept` is by slot: [layers, 2, slots, heads, elements].
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

BY_SLOT, PANELS, BY_SLOT_INT8, PANELS_INT8 = LAYOUTS = ("by_slot", "panels", "by_slot-int8", "panels-int8")
each_layout = pytest.mark.parametrize("layout", LAYOUTS)
UNUSED = {BY_SLOT: float("nan"), PANELS: 1e14, BY_SLOT_INT8: -1, PANELS_INT8: 0x56}
"""Elements of unused slots; with int8, the scale too is of such bytes: not a number, or 6e13. In panels, masked
neighbours are multiplied by 0: unused slots must be finite, as the engine keeps them."""


def has_scales(layout: str) -> bool:
    return layout in (BY_SLOT_INT8, PANELS_INT8)


def in_panels(layout: str) -> bool:
    return layout in (PANELS, PANELS_INT8)


def by_slot(layout: str) -> str:
    """The layout by slot that keeps as much of a number."""
    return BY_SLOT_INT8 if has_scales(layout) else BY_SLOT


def keep(numbers: Tensor, layout: str) -> Tensor:
    """Finite numbers [..., dim] -> what the cache keeps: themselves, or int8 [..., dim + 4], a scale at the end."""
    if not has_scales(layout):
        return numbers
    largest = numbers.float().abs().amax(-1, keepdim=True)
    inverse = torch.where(largest > 2.0**-100, torch.tensor(127.0) / largest, 0)
    integers = (numbers.float() * inverse).round().clamp(-127, 127).to(torch.int8)
    scale = torch.where(largest > 2.0**-100, largest / 127, 0)
    return torch.cat([integers, scale.view(torch.int8)], -1)


def numbers_of(kept: Tensor, layout: str) -> Tensor:
    """float64 [..., dim]."""
    if not has_scales(layout):
        return kept.double()
    return kept[..., :-4].double() * kept[..., -4:].contiguous().view(torch.float32).double()


def to_layout(kept: Tensor, layout: str) -> Tensor:
    """A copy in that layout, of the same shape."""
    if not in_panels(layout):
        return kept.clone()
    numbers, scales = split(kept, layout)
    layers, _, slots, heads, dim = numbers.shape
    step, pages = (1 if has_scales(layout) else 4 // kept.itemsize), slots // 16
    keys = numbers[:, 0].view(layers, pages, 16, heads, dim // step, step).permute(0, 1, 3, 4, 2, 5)
    values = numbers[:, 1].view(layers, pages, 16 // step, step, heads, dim // 16, 16).permute(0, 1, 4, 5, 2, 6, 3)
    beside = scales.view(layers, 2, pages, 16, heads, -1).transpose(3, 4).reshape(layers, 2, pages, heads, -1)
    elements = torch.stack([x.reshape(layers, pages, heads, -1) for x in (keys, values)], 1)
    return torch.cat([elements, beside], -1).view(kept.shape)


def from_layout(cache: Tensor, layout: str) -> Tensor:
    """`kept` again, a copy."""
    if not in_panels(layout):
        return cache.clone()
    layers, _, slots, heads, elements = cache.shape
    dim, pages = elements - 4 * has_scales(layout), slots // 16
    step = 1 if has_scales(layout) else 4 // cache.itemsize
    of_page = cache.view(layers, 2, pages, heads, -1)
    numbers, scales = of_page[..., : 16 * dim], of_page[..., 16 * dim :]
    keys = numbers[:, 0].reshape(layers, pages, heads, dim // step, 16, step).permute(0, 1, 4, 2, 3, 5)
    values = numbers[:, 1].reshape(layers, pages, heads, dim // 16, 16 // step, 16, step).permute(0, 1, 4, 6, 2, 3, 5)
    by_slot = torch.stack([x.reshape(layers, slots, heads, dim) for x in (keys, values)], 1)
    beside = scales.reshape(layers, 2, pages, heads, 16, -1).transpose(3, 4).reshape(layers, 2, slots, heads, -1)
    return torch.cat([by_slot, beside], -1)


def split(kept: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """Numbers or integers, and the bytes of scales."""
    end = kept.shape[-1] - 4 * has_scales(layout)
    return kept[..., :end], kept[..., end:]
