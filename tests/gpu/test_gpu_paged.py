"""On the device: `triton_paged` is right, and a row's bits are its own, whatever its tile, batch, span or draft."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from sizes import DRY, each_dtype

pytestmark = pytest.mark.gpu


@pytest.fixture
def checks():
    """Found by tests/gpu/pytest.ini, so not at collection elsewhere."""
    import paged_checks

    return paged_checks


@pytest.fixture
def kernels():
    from specserve_cuda.attention.paged_kernels import TritonPaged

    return TritonPaged


@each_dtype
def test_attention_is_near_float64(checks, kernels, dtype):
    shapes = (1, 4, 2, 16), (16, 2, 2, 64), (16, 32, 8, 128), (64, 3, 1, 80)
    for block_size, heads, kv_heads, head_dim in shapes[: 2 if DRY else None]:
        shape = checks.Shape(block_size, heads, kv_heads, head_dim, (None, 40, 5), dtype)
        checks.assert_near_dense(shape, kernels, device="cuda")


def test_capped_scores_and_sinks_are_near_float64(checks, kernels):
    checks.check_capped_scores_and_sinks_are_near_float64(kernels, "cuda")


@each_dtype
def test_neighbours_and_span_cuts_change_no_bit(checks, kernels, dtype):
    """Tiles of full height: rows change their places in them with every cut."""
    checks.check_neighbours_and_span_cuts_change_no_bit(
        kernels, "cuda", dtype, build=checks.backend_of, start=490, count=40
    )


@each_dtype
@pytest.mark.parametrize("start", [253] if DRY else [29, 253, 509, 1500])
def test_a_guess_has_the_bits_of_the_same_tokens_decoded_one_by_one(checks, kernels, dtype, start):
    checks.check_a_guess_has_the_bits_of_the_same_tokens_decoded_one_by_one(
        kernels, "cuda", dtype, build=checks.backend_of, start=start
    )


@pytest.mark.parametrize("rows", [2] if DRY else [1, 2, 5, 8])
@each_dtype
def test_the_height_of_a_tile_changes_no_bit(checks, kernels, dtype, rows):
    results = []
    for height in (None, rows):
        world = checks.World(checks.Shape(heads=8, kv_heads=4, head_dim=64, dtype=dtype), "cuda")
        spans = world.ragged()
        tables = world.rows(sum(span.length for span in spans))
        results.append(checks.attend(checks.backend_of(world, kernels, height), world, spans, 0, *tables))
    assert torch.equal(*results)


def test_the_cache_and_the_neighbours_of_broken_rows(checks, kernels):
    checks.check_the_cache_is_written_as_its_own_write_does_it(kernels, "cuda")
    checks.check_siblings_and_broken_rows_do_not_leak(kernels, "cuda")
    checks.check_launches_of_few_programs_change_nothing(kernels, "cuda")
    checks.check_padding_reads_no_key_and_stores_no_row(kernels, "cuda")


def test_a_plan_and_a_forward_never_wait_for_the_device(checks, kernels):
    world = checks.World(checks.Shape(head_dim=64, dtype=torch.bfloat16), "cuda")
    spans, backend = world.ragged(), checks.backend_of(world, kernels)
    tables = world.rows(sum(span.length for span in spans))
    run = partial(checks.attend, backend, world, spans, 0, *tables)
    run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
