"""A projection has one kernel and any number of deltas."""

from __future__ import annotations

import pytest
import torch

from specserve.errors import PluginError
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.projection import BatchRows, Projection


def make() -> Projection:
    parts = {"gate_proj": slice(0, 3), "up_proj": slice(3, 6)}
    return Projection("layers.0.gate_up_proj", torch.randn(6, 4), torch.randn(6), TorchKernels().linear, parts)


def test_it_is_a_linear_map_of_named_parts():
    projection, x = make(), torch.randn(32, 4)
    torch.testing.assert_close(projection(x), x @ projection.weight.T + projection.bias)
    assert (projection.in_features, projection.out_features) == (4, 6)
    assert projection.parts["up_proj"] == slice(3, 6)


def test_a_projection_without_parts_is_one_part_of_its_own_name():
    projection = Projection("layers.3.o_proj", torch.randn(6, 4), None, TorchKernels().linear)
    assert dict(projection.parts) == {"o_proj": slice(0, 6)}


def test_deltas_add_up_and_learn_which_rows_they_got():
    projection, x, seen = make(), torch.randn(32, 4), []
    plain = projection(x)
    for amount in (1.0, 2.0):
        projection.add_delta(lambda x, out, rows, lora, amount=amount: (seen.append((rows, lora)), out.add_(amount)))
    torch.testing.assert_close(projection(x, BatchRows(slice(64, 96), "plan")), plain + 3.0)
    assert seen == [(slice(64, 96), "plan")] * 2
    assert len(projection.deltas) == 2


def test_another_kernel_takes_the_place_of_the_default_one():
    projection, x = make(), torch.randn(32, 4)
    projection.set_kernel(lambda x, weight, bias: torch.zeros(32, 6), "cpu")
    projection.add_delta(lambda x, out, rows, lora: out.add_(1.0))
    assert torch.equal(projection(x), torch.ones(32, 6))


def test_two_owners_of_one_kernel_are_an_error_that_names_both():
    projection = make()
    projection.set_kernel(TorchKernels().linear, "cpu")
    projection.set_kernel(TorchKernels().linear, "cpu")
    with pytest.raises(PluginError, match=r"fused.*layers\.0\.gate_up_proj.*cpu"):
        projection.set_kernel(TorchKernels().linear, "fused")
