"""On the device: layers without attention. Chunks, neighbours, drafts, prefix hits and graphs change no bit of them."""

from __future__ import annotations

import pytest
import torch
from sizes import DRY

from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, toy_request
from specserve_workbench.testing.toy import write_checkpoint

pytestmark = pytest.mark.gpu
PAGED = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
DTYPES = ("bfloat16",) if DRY else ("float32", "bfloat16")


@pytest.fixture(scope="module", params=["lfm2", "lfm3", "qwen3_5_text"])
def model(request, tmp_path_factory):
    return write_checkpoint(tmp_path_factory.mktemp("model") / request.param, architecture=request.param)


def engine(model, dtype, drafter=None, **options):
    from cuda_references import hybrid_plugin

    hybrid = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": PAGED}}
    return make_engine(model, drafter, device="cuda", dtype=dtype, **hybrid, **options).engine


def requests_of(count=6):
    return [
        toy_request(str(i), range(2, 5 + 7 * i), max_tokens=12, ignore_eos=True, temperature=i % 2, seed=i)
        for i in range(count)
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_chunks_neighbours_drafts_and_graphs_change_nothing(model, dtype):
    requests = requests_of()
    expected = run_requests(engine(model, dtype, graphs="none"), requests)
    for graphs in ("none", "piecewise", "full"):
        for limits in ({}, {"max_num_seqs": 1, "max_num_batched_tokens": 8}):
            drafter = NoisyDrafter(expected.tokens(), p=0.8, max_width=6, vocab_size=TOY_VOCAB)
            found = run_requests(engine(model, dtype, drafter, graphs=graphs, **limits), requests)
            assert found.decided() == expected.decided(), (graphs, limits)
            assert accepted(found)[0] > 5
            assert all(not reason or graphs == "none" for _, reason in found.metrics.graph_steps)


def test_a_request_behind_cached_blocks_gets_what_it_would_have_got_alone(model):
    served, alone = (engine(model, "bfloat16", graphs="full") for _ in range(2))
    first, second = (toy_request(name, range(2, 60), max_tokens=8, seed=1) for name in "ab")
    run_requests(served, [first])
    found = run_requests(served, [second]).tokens()["b"]
    assert served.metrics.prompt_tokens_cached >= 32
    assert found == run_requests(alone, [second]).tokens()["b"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_gated_delta_net_is_near_that_of_torch(dtype):
    """Of 40 tokens, with heads of the sizes that Qwen3.5 has; outputs and states."""
    from specserve.batch.mixer_inputs import StateRun
    from specserve.batch.span_states import SpanStates
    from specserve.models.gated_delta_net import GatedDeltaNet, GatedDeltaNetConfig
    from specserve.protocols import LayerStates
    from specserve_cuda.kernels.kernel_set import CudaKernels

    torch.manual_seed(0)
    config = GatedDeltaNetConfig(key_heads=1, value_heads=2, key_dim=128, value_dim=128, taps=4, norm_eps=1e-6)
    tensors = {n.split(".", 1)[1]: torch.randn(shape, device="cuda") for n, shape in config.tensors(0).items()}
    reference = GatedDeltaNet(config, tensors)
    ours = CudaKernels().prepare_mixer(reference)
    width, kind = config.trail_width(0) + 256, getattr(torch, dtype)
    rows = torch.randn(40, width, device="cuda").to(kind)
    runs = [StateRun(SpanStates(0, 0, (), 1, ((16, 2),)), 0, 40, ())]
    found = []
    for mixer in (reference, ours):
        layer = LayerStates(
            torch.zeros(3, config.state_size(0), device="cuda"),
            rows.new_zeros((3, 2, config.trail_width(0))),
            torch.zeros(3, 2, 0, device="cuda"),
        )
        found.append((mixer.mix(rows, layer, runs).float(), layer.states))
    tolerance = 1e-4 if kind == torch.float32 else 3e-2
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
