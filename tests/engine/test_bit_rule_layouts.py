"""What reaches torch's attention has one layout and one way to be shared among threads, whichever rows it is for."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from torch.nn import functional

from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import FAMILIES, write_checkpoint


class Seen(NamedTuple):
    """One call. Strides between tiles are left out: they only say where a tile begins."""

    products: int
    queries_are_contiguous: bool
    strides: tuple[tuple[int, ...], ...]
    mask_rows_are_contiguous: bool


@pytest.fixture
def calls(monkeypatch):
    """All calls of torch's attention that a test makes."""
    seen = []
    attention = functional.scaled_dot_product_attention

    def watched(query, key, value, *, attn_mask, scale):
        strides = tuple(t.stride()[1:] for t in (query, key, value))
        rows = attn_mask.stride()[2:] == (key.shape[2], 1)
        seen.append(Seen(query.shape[0] * query.shape[1], query.is_contiguous(), strides, rows))
        return attention(query, key, value, attn_mask=attn_mask, scale=scale)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", watched)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_decode_rows_chunks_and_trees_reach_attention_in_one_layout(tmp_path, calls, family):
    model = write_checkpoint(tmp_path / family, **FAMILIES[family])
    requests = [toy_request(str(i), range(i + 1, 20 * i + 9), max_tokens=16, ignore_eos=True) for i in range(4)]
    expected = run(model, requests, prefix_cache=False).tokens()
    drafter = NoisyDrafter(expected, p=0.7, max_width=16, vocab_size=TOY_VOCAB, seed=0)
    assert run(model, requests, drafter, max_num_batched_tokens=40).metrics.num_accepted_tokens > 0
    assert all(call.queries_are_contiguous and call.mask_rows_are_contiguous for call in calls)
    assert len({call.strides for call in calls}) == 1


@pytest.mark.parametrize(("threads", "least"), [(1, 1), (2, 2)])
def test_no_call_leaves_one_product_for_all_threads(tmp_path, calls, threads, least):
    model = write_checkpoint(tmp_path / "mqa", **FAMILIES["mqa"])
    run(model, [toy_request("lone", range(1, 9), max_tokens=4, ignore_eos=True)], threads=threads)
    assert min(call.products for call in calls) == least


def test_a_neighbour_changes_nothing_where_threads_could_share_a_product(tmp_path):
    model = write_checkpoint(tmp_path / "mqa", num_attention_heads=20, num_key_value_heads=1, head_dim=20)
    requests = [
        toy_request(str(n), [i * n % 300 for i in range(n)], max_tokens=4, ignore_eos=True, logprobs=3)
        for n in (195, 196, 500)
    ]
    options = {"dtype": "float16", "threads": 2, "max_num_batched_tokens": 512}
    alone = run(model, requests, max_num_seqs=1, **options).decided()
    assert run(model, requests, **options).decided() == alone
