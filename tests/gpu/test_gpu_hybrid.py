"""On the device: the other backends of hybrid_attn, CuPy's kernels where CuPy is, and the hybrid as a whole."""

from __future__ import annotations

import pytest
import torch
from sizes import BATCH_SIZES, DRY, NUM_REQUESTS, each_half

from specserve_workbench.testing.engines import accepted, run
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request, varied_requests

pytestmark = pytest.mark.gpu
DEMO_VOCAB = 8192


@pytest.fixture
def cases():
    import paged_cases

    return paged_cases


def assert_near_dense(cases, world, backend, spans, layers):
    q, k, v = world.rows(sum(span.length for span in spans))
    for layer in range(layers):
        got = cases.attend(backend, world, spans, layer, q, k, v).double().cpu()
        torch.testing.assert_close(got, cases.dense(world, spans, layer, q), rtol=2e-2, atol=2e-2)


# --- flash ------------------------------------------------------------------------------------------------


def skip_where_missing(backend):
    from specserve_cuda.attention.varlen import missing_varlen

    if backend == "flash" and missing_varlen():
        pytest.skip(f"flash: {missing_varlen()}")


def flash_of(world):
    from specserve_cuda.attention.flash import FlashFactory

    skip_where_missing("flash")
    return FlashFactory().build(world.spec, world.cache, world.device, world.shape.dtype)


@each_half
@pytest.mark.parametrize("head_dim", [64] if DRY else [16, 64, 128, 256])
def test_flash_is_near_float64(cases, dtype, head_dim):
    world = cases.World(cases.Shape(16, 8, 2, head_dim, (None, 40, 5), dtype), "cuda")
    assert_near_dense(cases, world, flash_of(world), world.chains(), 3)


@each_half
@pytest.mark.parametrize("window", [None, 100])
def test_flash_rows_do_not_feel_neighbours_or_span_cuts(cases, dtype, window):
    """What `row_invariant` of `flash` claims from its source: see the module."""
    from specserve.batch.span import ScheduledSpan

    world = cases.World(cases.Shape(16, 8, 2, 64, (window,), dtype), "cuda")
    backend, span = flash_of(world), world.prompt(0, 700)
    q, k, v = world.rows(span.length)
    whole = cases.attend(backend, world, [span], 0, q, k, v)
    for width in (37, 300) if DRY else (1, 37, 128, 300):
        for begin in range(0, span.length, width):
            rows = slice(begin, min(begin + width, span.length))
            part = ScheduledSpan.of(span.request, begin, rows.stop - rows.start, scored=0)
            alone = cases.attend(backend, world, [part], 0, q[rows], k[rows], v[rows])
            assert torch.equal(alone, whole[rows]), (width, begin)
            if begin % 5 == 0:
                before, after = world.prompt(3, 4), world.prompt(900, 1)
                mixed = [torch.cat([n[:4], t[rows], n[4:]]) for n, t in zip(world.rows(5), (q, k, v), strict=True)]
                got = cases.attend(backend, world, [before, part, after], 0, *mixed)
                assert torch.equal(got[4 : 4 + part.length], whole[rows]), (width, begin)
                world.free += before.request.blocks + after.request.blocks


# --- FlashInfer and CuPy ------------------------------------------------------------------------------------


@each_half
@pytest.mark.parametrize("head_dim", [64, 128])
def test_flashinfer_is_near_float64_on_chains_and_trees(cases, dtype, head_dim):
    pytest.importorskip("flashinfer")
    from specserve_cuda.attention.flashinfer_paged import FlashInferFactory

    world = cases.World(cases.Shape(16, 8, 2, head_dim, (None, 40, 5), dtype), "cuda")
    backend = FlashInferFactory().build(world.spec, world.cache, world.device, dtype)
    for spans in (world.chains(), world.ragged()):
        assert_near_dense(cases, world, backend, spans, 3)


def test_cupy_computes_trees_and_masks_as_torch_does():
    pytest.importorskip("cupy")
    from tree_cases import assert_masks_are_right, assert_trees_are_right

    from specserve_cuda.attention.cupy_kernels import CupyTrees

    assert_trees_are_right(CupyTrees(), "cuda")
    for window in (None, 1, 4, 37):
        assert_masks_are_right(CupyTrees(), window, "cuda")


@pytest.mark.parametrize(("dtype", "head_dim"), [(torch.float32, 5), (torch.bfloat16, 64), (torch.float16, 5)], ids=str)
def test_cupy_moves_tokens_as_torch_does(dtype, head_dim):
    pytest.importorskip("cupy")
    from tree_cases import some_moves

    from specserve.kv.cache import move_tokens
    from specserve_cuda.attention.cupy_kernels import move_with_cupy

    data = torch.randn(3, 2, 400, 1, head_dim, device="cuda").to(dtype)
    for count in (1, 2, 170):
        expected, ours = data.clone(), data.clone()
        moves = some_moves(count, 400, seed=count)
        move_tokens(expected, *moves)
        move_with_cupy(ours, *moves)
        assert torch.equal(ours, expected)


def test_the_torch_version_of_the_trees_on_the_device():
    from tree_cases import assert_masks_are_right, assert_trees_are_right

    from specserve_cuda.attention.tree_masks import TorchTrees

    assert_trees_are_right(TorchTrees(), "cuda")
    assert_masks_are_right(TorchTrees(), 4, "cuda")


# --- the hybrid -------------------------------------------------------------------------------------------


PREFILLS = ["flash", "sdpa"]


@pytest.mark.parametrize("batch_size", BATCH_SIZES)
@pytest.mark.parametrize("prefill", PREFILLS)
def test_the_hybrid_is_lossless_on_the_toy(toy_model, prefill, batch_size):
    from cuda_references import assert_hybrid_is_lossless

    skip_where_missing(prefill)
    options = {"dtype": "bfloat16", "device": "cuda", "max_num_seqs": batch_size, "max_num_batched_tokens": 512}
    speculative = assert_hybrid_is_lossless(
        toy_model, varied_requests(NUM_REQUESTS), {}, TOY_VOCAB, prefill=prefill, **options
    )
    good, drafted = accepted(speculative)
    assert 0.15 < good / drafted < 0.9


@pytest.mark.parametrize("prefill", PREFILLS)
def test_the_hybrid_is_lossless_on_the_demo_model(demo_model, prefill):
    from cuda_references import assert_hybrid_is_lossless

    skip_where_missing(prefill)
    options = {"dtype": "bfloat16", "device": "cuda", "kv_memory": "512M", "max_num_seqs": 16}
    requests = varied_requests(NUM_REQUESTS // 2, vocab_size=DEMO_VOCAB)
    assert_hybrid_is_lossless(demo_model, requests, {}, DEMO_VOCAB, prefill=prefill, **options)


def test_triton_paged_alone_generates_what_sdpa_generates_in_float32(toy_model):
    from cuda_references import hybrid_plugin

    requests = [toy_request(str(i), range(1, 9 + 20 * i), max_tokens=24, ignore_eos=True) for i in range(8)]
    everywhere = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
    got = run(
        toy_model,
        requests,
        extra={"hybrid_attn": hybrid_plugin()},
        plugin_options={"hybrid_attn": everywhere},
        dtype="float32",
        device="cuda",
    )
    assert got.tokens() == run(toy_model, requests, dtype="float32", device="cuda").tokens()
