"""The bit rule on two ranks: a row's bits depend on its own path, and not on chunks, neighbours or preemption."""

from __future__ import annotations

import pytest
import torch
from msgspec.structs import replace
from rank_engines import ranks_of

from specserve_tensor_parallel.part import RankPart
from specserve_workbench.testing.engines import run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests

KINDS = [("float32", "torch"), ("bfloat16", "cpu")]


def with_logprobs(count, seed):
    return [replace(r, params=replace(r.params, logprobs=3)) for r in varied_requests(count, seed=seed)]


def one_by_one(engine, requests):
    """Each alone, so that no row has a neighbour of another request."""
    decided = {}
    for request in requests:
        engine.reset_prefix_cache()
        decided |= run_requests(engine, [request]).decided()
    return decided


@pytest.mark.parametrize(("dtype", "kernels"), KINDS)
def test_chunks_and_neighbours_change_no_token_and_no_logprob_on_two_ranks(toy_model, dtype, kernels):
    requests = with_logprobs(7, 3)
    options = {"dtype": dtype, "default_plugins": kernels == "cpu"}
    with ranks_of(toy_model, **options) as engine:
        expected = one_by_one(engine, requests)
        engine.reset_prefix_cache()
        assert run_requests(engine, requests).decided() == expected
    with ranks_of(toy_model, max_num_seqs=5, max_num_batched_tokens=17, kv_memory="440K", **options) as engine:
        chunked = run_requests(engine, requests)
        assert chunked.decided() == expected
        if dtype == "float32":
            assert chunked.metrics.num_preemptions > 0


def test_a_block_of_the_prefix_cache_has_the_bits_that_would_be_computed(toy_model):
    first = toy_request("first", range(1, 50), max_tokens=20, ignore_eos=True, logprobs=3)
    with ranks_of(toy_model) as engine:
        run_requests(engine, [first])
        again = run_requests(engine, [replace(first, request_id="again")])
        assert again.outputs["again"].steps[0].cached_tokens == 48
        engine.reset_prefix_cache()
        assert run_requests(engine, [replace(first, request_id="again")]).decided() == again.decided()


class Gathered:
    """A group in which every rank has one of these numbers."""

    def __init__(self, numbers, dtype):
        self.numbers, self.dtype = numbers, dtype

    def gather(self, x):
        return [torch.tensor([[number]], dtype=self.dtype) for number in self.numbers]


def summed(numbers, dtype):
    part = RankPart(0, len(numbers), 1.0)
    part.group_or_none = Gathered(numbers, dtype)
    return part.add_parts(torch.zeros((1, 1), dtype=dtype)).item()


def test_parts_are_added_in_the_order_of_ranks():
    assert summed((2.0**24, 1.0, 1.0), torch.float32) == 2**24
    assert summed((1.0, 1.0, 2.0**24), torch.float32) == 2**24 + 2


def test_a_sum_is_rounded_once():
    """Of 256 and 0.75, bfloat16 keeps 256."""
    assert summed((256.0, 0.75, 0.75), torch.bfloat16) == 258
