"""`flash`: what it passes to varlen attention, checked by a plain loop that stands in for torch's."""

from __future__ import annotations

import msgspec
import pytest
import torch
from cuda_references import reference_plugin
from paged_cases import Shape, World, attend, dense
from torch.nn import attention

from specserve.attention.sdpa import SdpaFactory
from specserve.errors import ConfigError
from specserve.protocols import AttentionNeeds
from specserve_cuda.attention import varlen
from specserve_cuda.attention.backends import cuda_backends
from specserve_cuda.attention.flash import FlashAttention
from specserve_cuda.attention.varlen import torch_varlen, varlen_attn_reference
from specserve_hybrid_attn.choose_backends import choose
from specserve_hybrid_attn.options import HybridOptions
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import accepted, make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests


def recording(calls):
    """The reference, which also records its arguments."""

    def varlen_attn(*arguments, **options):
        calls.append((arguments, options))
        return varlen_attn_reference(*arguments, **options)

    return varlen_attn


def flash_of(world, calls):
    return FlashAttention(world.spec, world.cache, world.device, recording(calls))


@pytest.mark.parametrize("shape", [
    Shape(block_size=1),
    Shape(windows=(None, 7, 1, 40)),
    Shape(block_size=64, heads=3, kv_heads=3, head_dim=24),
    Shape(dtype=torch.bfloat16),
], ids=str)  # fmt: skip
def test_prompts_and_chains_are_near_float64(shape):
    world, calls = World(shape), []
    spans, backend = world.chains(), flash_of(world, calls)
    q, k, v = world.rows(sum(span.length for span in spans))
    unit = 1e-5 if shape.dtype == torch.float32 else 2e-2
    for layer in range(len(shape.windows)):
        got = attend(backend, world, spans, layer, q, k, v)
        torch.testing.assert_close(got.double(), dense(world, spans, layer, q), rtol=unit, atol=unit)


def test_what_torch_is_given_is_what_it_asks_for():
    world, calls = World(Shape(windows=(None, 400))), []
    spans, backend = world.chains(), flash_of(world, calls)
    q, k, v = world.rows(sum(span.length for span in spans))
    for layer in (0, 1):
        attend(backend, world, spans, layer, q, k, v)
    (query, keys, values, cu_q, cu_k, most_q, most_k), options = calls[0]
    assert keys.shape == values.shape == (16 * (2 + 17 + 19 + 3), 2, 16)
    assert [t.dtype for t in (cu_q, cu_k, options["seqused_k"])] == [torch.int32] * 3
    assert cu_q.tolist() == [0, 21, 31, 32, 39]
    assert cu_k.tolist() == [0, 32, 304, 608, 656]
    assert options["seqused_k"].tolist() == [21, 260, 301, 40]
    assert (len(query), most_q) == (39, 21)
    assert most_k == 400, "no less than the widest window, or torch would take another kernel in short batches"
    assert [each["window_size"] for _, each in calls] == [(-1, 0), (399, 0)]
    assert all(each["num_splits"] == 1 and each["enable_gqa"] for _, each in calls)


def test_neighbouring_blocks_are_read_in_place():
    world, calls = World(Shape()), []
    span, backend = world.prompt(10, 60), flash_of(world, calls)
    span = msgspec.structs.replace(span, blocks=[20, 21, 22, 23, 24])
    attend(backend, world, [span], 0, *world.rows(60))
    assert calls[0][0][1].data_ptr() == world.cache.data[0, 0, 320].data_ptr()


def test_a_branching_draft_is_our_mistake():
    world = World(Shape())
    with pytest.raises(AssertionError, match="cut to chains"):
        flash_of(world, []).plan(world.builder.schedule([world.tree(5, (-1, -1))]))


def test_an_engine_on_the_reference_drafts_chains_and_says_what_sdpa_says(toy_model):
    requests = [r for r in varied_requests(12, seed=5) if r.params.temperature == 0.0]
    expected = run(toy_model, requests).tokens()
    drafter = NoisyDrafter(expected, p=0.8, max_width=5, vocab_size=TOY_VOCAB)
    assembled = make_engine(toy_model, drafter, extra={"cuda_references": reference_plugin()}, attention="flash")
    assert "cut to chains" in assembled.description["attention"]
    drafted = run_requests(assembled.engine, requests)
    assert drafted.tokens() == expected
    assert accepted(drafted)[0] > 0


def test_torch_has_what_flash_needs_of_it():
    assert torch_varlen() is not None


def test_an_older_torch_is_refused(monkeypatch):
    monkeypatch.setattr(varlen, "MIN_TORCH", "99.1")
    with pytest.raises(ConfigError, match=r"needs torch 99\.1 or newer"):
        torch_varlen()


def test_another_flash_attention_than_2_is_refused(monkeypatch):
    monkeypatch.setattr(attention, "current_flash_attention_impl", lambda: "FA3")
    with pytest.raises(ConfigError, match="has activated FA3"):
        torch_varlen()


def needs(**changes):
    every = {"device": "cuda", "dtype": "bfloat16", "block_size": 16, "head_dim": 64, "head_bytes": 128}
    return AttentionNeeds(**{**every, "graphs": "none", "drafts": True, "trees": True, **changes})


def offers():
    return {factory.name: factory for factory in [SdpaFactory(), *cuda_backends()]}


def test_large_heads_are_another_backends():
    large = needs(head_dim=264, head_bytes=528)
    name = choose(HybridOptions(), offers(), large).name
    assert "flash" not in name
    assert "triton_paged" in name
    with pytest.raises(ConfigError, match="heads of 264 numbers are more than its 256"):
        choose(HybridOptions(prefill="flash"), offers(), large)


@pytest.mark.parametrize("reason", [r"it needs torch 99\.1 or newer", "has activated FA3"])
def test_where_it_cannot_run_it_is_not_chosen_and_its_name_says_why(monkeypatch, reason):
    if "99" in reason:
        monkeypatch.setattr(varlen, "MIN_TORCH", "99.1")
    else:
        monkeypatch.setattr(attention, "current_flash_attention_impl", lambda: "FA3")
    chosen = choose(HybridOptions(), offers(), needs())
    assert chosen.name == "hybrid(prefill=triton_paged, verify=triton_paged)"
    with pytest.raises(ConfigError, match=f"prefill=flash: .*{reason}"):
        choose(HybridOptions(prefill="flash"), offers(), needs())
