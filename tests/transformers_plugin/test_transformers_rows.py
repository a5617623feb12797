"""Functions of torch, called so that a number's bits depend neither on its place nor on what is beside it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from specserve.errors import ModelError
from specserve.kernels.torch_kernels import TorchKernels
from specserve_transformers.norms import NormForm, RowNorm, recognise, reference
from specserve_transformers.row_safe import RowSafe, in_vectors

ELEMENTWISE = {
    "sigmoid": torch.sigmoid,
    "tanh": lambda x: x.tanh(),
    "exp": torch.exp,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus": F.softplus,
    "pow": lambda x: x.abs() ** 1.5,
    "rsqrt": lambda x: torch.rsqrt(x.abs() + 1),
    "log1p": lambda x: torch.log1p(x.abs()),
    "in place": lambda x: x.clone().sigmoid_(),
}
WEIGHT = torch.randn((11, 77), generator=torch.Generator().manual_seed(5))
ALONG_ROWS = {
    "softmax": lambda x: F.softmax(x, dim=-1, dtype=torch.float32),
    "mean": lambda x: x.float().mean(-1, keepdim=True),
    "sum": lambda x: x.sum(-1),
    "sum of a list": lambda x: x.sum(dim=[-1]),
    "norm": lambda x: x.float().norm(dim=-1, keepdim=True),
    "normalize": lambda x: F.normalize(x.float(), dim=-1),
    "topk": lambda x: torch.topk(x, 4, dim=-1).values,
    "sort": lambda x: x.sort(dim=-1, descending=True)[0],
    "linear": lambda x: F.linear(x.float(), WEIGHT),
    "matmul": lambda x: x.float() @ WEIGHT.t(),
}


def numbers(*shape, dtype=torch.float32):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))) * 4).to(dtype)


def safely(function, x):
    with RowSafe():
        return function(x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_number_has_the_same_bits_at_any_place_of_any_call(name, dtype):
    function, x = ELEMENTWISE[name], numbers(1, 700, 77, dtype=dtype)
    whole = safely(function, x)
    torch.testing.assert_close(whole, function(x))
    for part in (slice(0, 1), slice(3, 5), slice(650, 700), slice(123, 456)):
        assert torch.equal(safely(function, x[:, part]), whole[:, part])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ALONG_ROWS)
def test_a_row_has_the_same_bits_in_any_call(name, dtype):
    function, x = ALONG_ROWS[name], numbers(1, 70, 77, dtype=dtype)
    whole = safely(function, x)
    torch.testing.assert_close(whole, function(x), rtol=1e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-5)
    for part in (slice(0, 1), slice(3, 5), slice(33, 70)):
        assert torch.equal(safely(function, x[:, part]), whole[:, part])


def test_of_equal_numbers_the_first_are_chosen():
    x = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]])
    assert safely(lambda x: torch.topk(x, 2, dim=-1).indices, x).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.cumsum(x, 1),
        lambda x: x.mean(1),
        lambda x: x.softmax(0),
        lambda x: x @ x.transpose(1, 2),
        lambda x: torch.pow(x, x),
        lambda x: torch.einsum("bij->bji", x),
    ],
)
def test_a_call_that_cannot_be_made_safe_raises(function):
    with pytest.raises(ModelError, match="in a way that is not row-wise"):
        safely(function, numbers(1, 5, 5))


def test_without_whole_vectors_torchs_bits_depend_on_the_place():
    """Why there is `in_vectors`."""
    x = numbers(70, 77)
    assert any(not torch.equal(F.silu(x[i : i + 3]), F.silu(x)[i : i + 3]) for i in range(60))
    assert all(torch.equal(in_vectors(F.silu, x[i]), in_vectors(F.silu, x)[i]) for i in range(70))


# --- norms ----------------------------------------------------------------------------------------------


class Written(nn.Module):
    """A norm as models have it, under a name that says nothing."""

    def __init__(self, form, size=48):
        super().__init__()
        self.form, self.weight, self.some_number = form, nn.Parameter(torch.ones(size)), form.eps

    def forward(self, x):
        return reference(self.form, x, self.weight, None)


FORMS = [
    NormForm(eps, offset, wide, centred)
    for eps in (1e-6, 3e-4)
    for offset in (0.0, 1.0)
    for wide in (False, True)
    for centred in (False, True)
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_norm_is_recognised_by_what_it_computes(form):
    found = recognise(Written(form).to(torch.bfloat16), 48, torch.bfloat16)
    assert found is not None
    assert (found.eps, found.offset, found.centred) == (form.eps, form.offset, form.centred)
    assert form.centred or form.wide == found.wide


def test_another_norm_is_not_recognised():
    class Other(Written):
        def forward(self, x):
            return x / (x.abs().amax(-1, keepdim=True) + self.some_number) * self.weight

    assert recognise(Other(FORMS[0]), 48, torch.float32) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [48, 77])
@pytest.mark.parametrize("centred", [False, True])
def test_a_norms_row_has_the_same_bits_in_any_call(centred, size, dtype):
    form = NormForm(1e-5, 0.0, wide=False, centred=centred)
    module = Written(form, size).to(dtype)
    ours, x = RowNorm(form, module, TorchKernels(), dtype, size), numbers(1, 100, size, dtype=dtype)
    whole = ours(x)
    torch.testing.assert_close(whole, module(x))
    for part in (slice(0, 1), slice(31, 34), slice(50, 100)):
        assert torch.equal(ours(x[:, part]), whole[:, part])
