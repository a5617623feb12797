"""Weights of few bits: stacked into one, and cut at their groups as processes that share a model have them."""

from __future__ import annotations

import pytest
import torch
from coded_forms import FORMS, Form, Numbers, coded

from specserve.models.quantised import columns_of, dense, stacked
from specserve.protocols.part import TensorPart
from specserve.protocols.quantised import QuantisedWeight, StackedWeight

PAIRS = Form(tuple(range(16)), 32, *[Numbers(torch.float16, torch.uint8, 2)] * 2)
"""Two groups share a unit."""


@pytest.mark.parametrize("form", [*FORMS.values(), PAIRS], ids=[*FORMS, "pairs"])
@pytest.mark.parametrize("columns", [slice(0, 128), slice(128, 256), slice(128, 400), slice(256, 400)], ids=str)
def test_columns_are_those_of_the_dense_weight(form: Form, columns: slice) -> None:
    weight = coded(form, 20, 400)
    cut = columns_of(weight, TensorPart(columns=columns))
    assert isinstance(cut, QuantisedWeight)
    assert torch.equal(cut.dense(), weight.dense()[:, columns])


@pytest.mark.parametrize("columns", [slice(0, 32), slice(32, 64), slice(32, 160), slice(96, 256)], ids=str)
def test_a_cut_between_groups_that_share_a_unit_gives_each_its_own(columns: slice) -> None:
    weight = coded(PAIRS, 20, 256)
    cut = columns_of(weight, TensorPart(columns=columns))
    assert torch.equal(dense(cut), weight.dense()[:, columns])


@pytest.mark.parametrize("columns", [slice(0, 20), slice(16, 64), slice(32, 200)], ids=str)
def test_a_cut_within_a_group_is_refused(columns: slice) -> None:
    with pytest.raises(ValueError, match=rf"columns {columns.start} to {columns.stop} are not whole groups of 32"):
        columns_of(coded(PAIRS, 20, 256), TensorPart(columns=columns))


@pytest.mark.parametrize("form", FORMS)
def test_weights_of_one_form_become_one_weight(form: str) -> None:
    weights = [coded(FORMS[form], rows, 96, seed=rows) for rows in (3, 16, 5)]
    together = stacked(weights)
    assert isinstance(together, QuantisedWeight)
    assert torch.equal(together.dense(), torch.cat([weight.dense() for weight in weights]))


def test_weights_of_several_forms_become_a_stack_and_dense_ones_make_all_dense() -> None:
    weights = [coded(form, 8, 96) for form in FORMS.values()]
    expected = torch.cat([weight.dense() for weight in weights])
    together = stacked(weights)
    assert isinstance(together, StackedWeight)
    assert together.shape == (8 * len(FORMS), 96)
    assert torch.equal(dense(together), expected)
    beside = stacked([*weights, expected])
    assert isinstance(beside, torch.Tensor)
    assert torch.equal(beside, torch.cat([expected, expected]))
