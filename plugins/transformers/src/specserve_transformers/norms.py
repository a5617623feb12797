"""Norms of transformers' models, recognised by what they compute, and computed row by row.

A module with at most a weight and a bias is given numbers: where it answers what a root-mean-square norm or a layer
norm answers, it is one. Its class and its name count for nothing.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from specserve_transformers.linears import Leaf, tiles_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from specserve.api import KernelSet

SAMPLE_ROWS = 3


class NormForm(NamedTuple):
    """`offset`: what is added to the stored weight. `wide`: the weight is multiplied in float32, before the rounding.
    `centred`: a layer norm."""

    eps: float
    offset: float
    wide: bool
    centred: bool


def reference(form: NormForm, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """As the papers have it, in x's dtype but for the float32 of half-precision inputs."""
    numbers = x.double() if x.dtype == torch.float64 else x.float()
    if form.centred:
        numbers = numbers - numbers.mean(-1, keepdim=True)
    numbers = numbers * torch.rsqrt(numbers.pow(2).mean(-1, keepdim=True) + form.eps)
    if weight is None:
        return numbers.to(x.dtype)
    scale = weight.to(numbers.dtype) + form.offset if form.wide else weight + form.offset
    out = (numbers * scale).to(x.dtype) if form.wide else numbers.to(x.dtype) * scale
    return out if bias is None else out + bias


def recognise(module: nn.Module, size: int, dtype: torch.dtype) -> NormForm | None:
    """size: of the module's input. None: it is none of these norms."""
    sample = torch.randn((SAMPLE_ROWS, size), generator=torch.Generator().manual_seed(size), dtype=torch.float64) * 2
    exact = copied(module, torch.float64, size)
    weight, bias = exact._parameters.get("weight"), exact._parameters.get("bias")
    forms = (
        NormForm(eps, offset, wide, centred)
        for centred in (False, True)
        for offset in (0.0, 1.0)
        for eps in epsilons(module)
        for wide in (False, True)
    )
    for form in forms:
        try:
            if not torch.allclose(exact(sample), reference(form, sample, weight, bias), rtol=1e-5, atol=1e-6):
                continue
        except Exception:
            return None
        if dtype == torch.float32 or weight is None or form.centred:
            return form
        rough = copied(module, dtype, size)
        x = sample.to(dtype)
        if torch.equal(rough(x), reference(form, x, rough._parameters.get("weight"), None)):
            return form
    return None


def copied(module: nn.Module, dtype: torch.dtype, size: int) -> nn.Module:
    """With numbers unlike those that a new module has."""
    made = copy.deepcopy(module)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            numbers = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(size + len(name)))
            kept = parameter.dtype if dtype != torch.float64 else dtype
            made._parameters[name] = nn.Parameter(numbers.to(kept), requires_grad=False)
    return made


def epsilons(module: nn.Module) -> Iterator[float]:
    """Small numbers among the module's attributes."""
    found = {value for value in vars(module).values() if isinstance(value, float) and 0 < value < 0.1}
    yield from sorted(found) or [1e-5]


class RowNorm(Leaf):
    """x: [..., n]. A root-mean-square norm is the kernel set's, a layer norm torch's, which takes rows one by one."""

    def __init__(self, form: NormForm, module: nn.Module, kernels: KernelSet, dtype: torch.dtype, size: int) -> None:
        super().__init__()
        self.form, self.size, self.row_tile = form, size, kernels.row_tile
        weight = module._parameters.get("weight")
        numbers = torch.ones(size) if weight is None else weight.detach()
        device = None if weight is None else weight.device
        if form.wide or weight is None:
            numbers = numbers.float() + form.offset
        elif form.offset:
            numbers = numbers + form.offset
        self.weight = nn.Parameter(numbers.to(device or "cpu"), requires_grad=False)
        if weight is None and not form.wide:
            self.weight = nn.Parameter(self.weight.to(dtype), requires_grad=False)
        bias = module._parameters.get("bias")
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.normed = partial(kernels.rms_norm, weight=self.weight.detach(), eps=form.eps)

    def __call__(self, x: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            if self.row_tile is None and not self.form.centred and x.dim() == 3:
                return self.normed(x)
            rows = x.reshape(-1, self.size)
            if self.form.centred:
                return self.centred(rows).view(x.shape)
            if self.row_tile is None:
                return self.normed(rows).view(x.shape)
            return tiles_of(lambda tile, _: self.normed(tile), rows, self.row_tile).view(x.shape)

    def centred(self, rows: Tensor) -> Tensor:
        if self.form.wide and rows.dtype != torch.float32:
            bias = None if self.bias is None else self.bias.float()
            return F.layer_norm(rows.float(), (self.size,), self.weight, bias, self.form.eps).to(rows.dtype)
        weight, bias = self.weight.to(rows.dtype), None if self.bias is None else self.bias.to(rows.dtype)
        return F.layer_norm(rows, (self.size,), weight, bias, self.form.eps)
