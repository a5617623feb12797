"""The modules that stand in for transformers' own: shared products, rotations, tables of positions, masks."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers.models.glm4 import modeling_glm4
from transformers.models.llama import modeling_llama

from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.projection import Projection
from specserve_transformers.direct_calls import JointRotation, rotates_halves
from specserve_transformers.linears import Product, SharedProduct, tiles_of
from specserve_transformers.masks import Mask, UnservedMask
from specserve_transformers.rotations import PositionTable
from specserve_transformers.step import Step


@pytest.fixture
def shared():
    projection = Projection("both", torch.randn((6, 4)), None, TorchKernels().linear)
    return SharedProduct(Product(projection, Step(), 32, adaptable=False), [slice(0, 2), slice(2, 6)])


def test_the_parts_of_a_product_belong_to_the_input_that_is_given(shared):
    first, second = torch.randn((1, 3, 4)), torch.randn((1, 3, 4))
    weight = shared.product.projection.weight
    shared.part(0, first)
    for index, x in ((0, second), (1, second), (1, first), (0, first), (0, first), (1, first)):
        expected = x @ weight[shared.parts[index]].t()
        torch.testing.assert_close(shared.part(index, x), expected)


def test_an_input_whose_parts_are_all_taken_is_not_kept(shared):
    x = torch.randn((1, 3, 4))
    shared.part(0, x)
    assert shared.x is x
    shared.part(1, x)
    assert shared.x is None


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 70])
def test_tiles_are_whole_and_in_order(count):
    seen = []

    def tile(rows, place):
        seen.append((len(rows), place.start))
        return rows * 2

    x = torch.randn((count, 3))
    assert torch.equal(tiles_of(tile, x, 32), x * 2)
    assert all(size == 32 for size, _ in seen)
    assert [begin for _, begin in seen] == list(range(0, max(count, 1), 32))


def test_queries_and_keys_rotate_together_with_the_bits_of_transformers():
    assert rotates_halves(modeling_llama.apply_rotary_pos_emb)
    q, k = torch.randn((1, 4, 7, 16)).bfloat16(), torch.randn((1, 2, 7, 16)).bfloat16()
    joint = JointRotation(modeling_llama.apply_rotary_pos_emb)
    for _ in range(2):  # another step has other tables
        cos, sin = torch.randn((1, 7, 16)).bfloat16(), torch.randn((1, 7, 16)).bfloat16()
        for ours, theirs in zip(joint(q, k, cos, sin), joint.own(q, k, cos, sin), strict=True):
            assert torch.equal(ours, theirs)


def test_another_rotation_stays_transformers_own():
    assert not rotates_halves(modeling_glm4.apply_rotary_pos_emb)
    parts = torch.randn((1, 7, 8))  # of heads of 16
    q, k = torch.randn((1, 4, 7, 16)), torch.randn((1, 2, 7, 16))
    calls = []
    JointRotation(lambda *args: calls.append(args))(q, k, parts, parts)
    assert len(calls) == 1


class Angles(nn.Module):
    def forward(self, x, position_ids, kind="full"):
        angles = position_ids[..., None].float() * torch.tensor([1.0, 0.1, 0.01])
        return angles.cos().to(x.dtype), (angles * (2 if kind == "full" else 3)).sin().to(x.dtype)


def test_a_position_has_the_same_angles_in_any_call():
    table = PositionTable(Angles(), 100, torch.float32, torch.device("cpu"))
    x = torch.zeros((1, 1, 4))
    every = torch.arange(100)[None]
    for kind in ("full", "sliding"):
        cos, sin = table(x, every, kind)
        for places in ([5], [99, 3], list(range(40, 90))):
            found = table(x, position_ids=torch.tensor([places]), kind=kind)
            assert torch.equal(found[0], cos[:, places])
            assert torch.equal(found[1], sin[:, places])
    assert len(table.tables) == 2


def test_a_mask_is_a_window_or_is_refused():
    assert Mask(lambda b, h, q, k: k <= q).window(50) is None
    assert Mask(lambda b, h, q, k: (k <= q) & (k > q - 7)).window(50) == 7
    with pytest.raises(UnservedMask, match="sees other keys"):
        Mask(lambda b, h, q, k: k // 8 == q // 8).window(50)
    with pytest.raises(UnservedMask, match="sees other keys"):
        Mask(lambda b, h, q, k: k >= 0).window(50)
    with pytest.raises(UnservedMask, match="depends on more than positions"):
        Mask(lambda b, h, q, k: torch.zeros((3, 3))[q, k]).window(50)
