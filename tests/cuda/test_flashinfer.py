"""`flashinfer` over a fake of the package, which reads the arguments as FlashInfer's documentation defines them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch
from paged_cases import TREE, Shape, World, attend, dense

from specserve.errors import ConfigError
from specserve_cuda.attention import flashinfer_paged
from specserve_cuda.attention.flashinfer_paged import FlashInferAttention, FlashInferFactory


class FakeWrapper:
    """Attention by the page tables, in plain torch."""

    made: list[FakeWrapper]

    def __init__(self, workspace, kv_layout, backend):
        assert (workspace.dtype, kv_layout, backend) == (torch.uint8, "NHD", "fa2")
        self.made.append(self)

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        *,
        custom_mask=None,
        causal=False,
        sm_scale,
        window_left,
        q_data_type,
        kv_data_type,
        disable_split_kv,
    ):
        tables = (qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len)
        assert all(table.dtype == torch.int32 for table in tables)
        assert q_data_type == kv_data_type == torch.bfloat16
        assert disable_split_kv
        assert (custom_mask is None) == causal
        self.tables = [table.tolist() for table in tables]
        self.heads, self.page_size, self.scale = (num_qo_heads, num_kv_heads, head_dim_qk), page_size, sm_scale
        self.mask, self.window_left = custom_mask, window_left

    def run(self, q, paged_kv_cache):
        (rows, pages, indices, last), size = self.tables, self.page_size
        assert q.shape == (rows[-1], self.heads[0], self.heads[2])
        assert all(cache.shape[1:] == (size, *self.heads[1:]) for cache in paged_kv_cache)
        out, at = torch.empty_like(q), 0
        for i, ending in enumerate(last):
            ids, count = indices[pages[i] : pages[i + 1]], rows[i + 1] - rows[i]
            length = (len(ids) - 1) * size + ending
            keys, values = (cache[ids].flatten(0, 1)[:length].float().transpose(0, 1) for cache in paged_kv_cache)
            keys, values = (t.repeat_interleave(self.heads[0] // self.heads[1], dim=0) for t in (keys, values))
            if self.mask is None:
                place, number = torch.arange(count)[:, None] + length - count, torch.arange(length)
                seen = number <= place
                if self.window_left >= 0:
                    seen &= number >= place - self.window_left
            else:
                seen, at = self.mask[at : at + count * length].view(count, length), at + count * length
            queries = q[rows[i] : rows[i + 1]].float().transpose(0, 1)
            scores = (queries @ keys.mT * self.scale).masked_fill(~seen, float("-inf"))
            out[rows[i] : rows[i + 1]] = (scores.softmax(-1) @ values).transpose(0, 1).to(q.dtype)
        assert self.mask is None or at == len(self.mask)
        return out


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(FakeWrapper, "made", [], raising=False)
    monkeypatch.setattr(flashinfer_paged, "WORKSPACE_BYTES", 64)
    return SimpleNamespace(BatchPrefillWithPagedKVCacheWrapper=FakeWrapper)


@pytest.mark.parametrize("branching", [False, True])
@pytest.mark.parametrize("block_size", [1, 16])
def test_chains_and_trees_are_near_float64(fake, branching, block_size):
    world = World(Shape(block_size, windows=(None, 6, None), dtype=torch.bfloat16))
    spans = world.ragged() if branching else world.chains()
    backend = FlashInferAttention(world.spec, world.cache, world.device, fake)
    q, k, v = world.rows(sum(span.length for span in spans))
    for layer in range(3):
        got = attend(backend, world, spans, layer, q, k, v)
        torch.testing.assert_close(got.double(), dense(world, spans, layer, q), rtol=2e-2, atol=2e-2)
    assert len(FakeWrapper.made) == 2, "one plan per window"
    assert all((wrapper.mask is not None) == branching for wrapper in FakeWrapper.made)


def test_the_page_tables(fake):
    world = World(Shape(dtype=torch.bfloat16))
    spans = [world.prompt(0, 32), world.tree(40, TREE)]
    FlashInferAttention(world.spec, world.cache, world.device, fake).plan(world.builder.schedule(spans))
    rows, pages, indices, last = FakeWrapper.made[0].tables
    assert rows == [0, 32, 43]
    assert pages == [0, 2, 6]
    assert indices == [*spans[0].request.blocks[:2], *spans[1].request.blocks[:4]]
    assert last == [16, 3]
    assert len(FakeWrapper.made[0].mask) == 32 * 32 + 11 * 51


def test_the_build_says_what_to_install(monkeypatch):
    world = World(Shape(head_dim=64, dtype=torch.bfloat16))
    monkeypatch.setitem(sys.modules, "flashinfer", None)
    with pytest.raises(ConfigError, match="hybrid-attn\\[flashinfer\\]"):
        FlashInferFactory().build(world.spec, world.cache, world.device, torch.bfloat16)


def test_heads_that_it_has_no_kernel_for_are_refused():
    world = World(Shape(head_dim=80, dtype=torch.bfloat16))
    with pytest.raises(ConfigError, match="have 80"):
        FlashInferFactory().build(world.spec, world.cache, world.device, torch.bfloat16)
