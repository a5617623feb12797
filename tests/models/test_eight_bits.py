"""Weights that are rounded to 8 bits with a scale for each output."""

from __future__ import annotations

import pytest
import torch

from specserve.models import quantised
from specserve.models.projection import Projection, Router, WideRouter
from specserve.models.quantised import to_eight_bits
from specserve.protocols.quantised import QuantisedWeight


def by_the_rule(weight):
    rows = []
    for row in weight.float():
        scale = row.abs().max() / 127
        rows.append([int(torch.round(number / scale)) if scale else 0 for number in row])
    return torch.tensor(rows, dtype=torch.int8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("at_once", [1 << 22, 20])
def test_each_number_is_the_nearest_multiple(monkeypatch, dtype, at_once):
    monkeypatch.setattr(quantised, "DENSE_AT_ONCE", at_once)
    weight = torch.randn(13, 9, generator=torch.Generator().manual_seed(1)).to(dtype)
    weight[3] = 0
    weight[5] *= 1e-30
    weight[7] *= 1e30
    kept = to_eight_bits(weight)
    assert torch.equal(kept.integers, by_the_rule(weight))
    assert kept.integers.abs().amax(1).tolist() == [127 if row.any() else 0 for row in weight]
    off = (kept.dense().float() - weight.float()).abs()
    assert (off <= weight.float().abs().amax(1, keepdim=True) * (0.5 / 127 + 2**-8)).all()
    assert kept.dtype == kept.dense().dtype == dtype


@pytest.mark.parametrize("number", [torch.inf, -torch.inf, torch.nan])
def test_numbers_must_be_finite(number):
    weight = torch.ones(4, 4)
    weight[2, 1] = number
    with pytest.raises(ValueError, match="only finite weights"):
        to_eight_bits(weight)


def test_a_router_and_what_is_quantised_already_stay_as_they_are():
    weight = torch.randn(4, 8)
    routers = [kind("router", weight, None, torch.nn.functional.linear) for kind in (Router, WideRouter)]
    coded = QuantisedWeight(torch.ones(4, 8, dtype=torch.int8), torch.ones(4, 2), 4, torch.float32)
    kept = Projection("coded", coded, None, torch.nn.functional.linear)
    plain = Projection("plain", weight, None, torch.nn.functional.linear)
    for each in (*routers, kept, plain):
        each.quantise(to_eight_bits)
    assert all(each.stored() is weight for each in routers)
    assert kept.stored() is coded
    assert torch.equal(plain.stored().integers, to_eight_bits(weight).integers)
