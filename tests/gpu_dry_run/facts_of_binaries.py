"""What must stay true of the binaries for sm_90. Run by `test_dry_run` under its pytest plugin, not by itself."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from cuda_references import hybrid_plugin

from specserve.batch.lora_plan import Segment
from specserve_cuda.kernels.kernel_set import CudaKernels
from specserve_cuda.launch import Launch
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import make_engine, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests

ROWS = (1, 2, 3, 15, 16, 17, 48, 64, 65, 128, 512, 513, 600)
EVERYWHERE = dict.fromkeys(("prefill", "decode", "verify"), "triton_paged")
KERNELS = {
    "linear_kernel", "add_and_norm_kernel", "rotate_and_write_kernel", "silu_and_multiply_kernel", "attend_kernel",
    "merge_kernel", "sample_kernel", "edit_kernel",
}  # fmt: skip


@pytest.fixture
def dispatched(monkeypatch):
    """Every launch goes through Triton's dispatcher, which would compile where arguments ask for another binary."""
    monkeypatch.setattr(Launch, "__call__", lambda self, x, y, *arguments: self.first(x, y, arguments))


def new_binaries(stub, function):
    before = len(stub.binaries)
    function()
    return stub.binaries[before:]


@pytest.mark.usefixtures("dispatched")
def test_one_binary_serves_all_row_counts_of_a_tile(stub):
    kernels, (width, depth) = CudaKernels(), (208, 112)
    weight, gain = torch.randn(width, depth).bfloat16(), torch.randn(depth).bfloat16()

    def call(rows):
        x, (cos, sin) = torch.randn(rows, depth).bfloat16(), torch.randn(2, rows, 1, 28)
        kernels.linear(x, weight, None)
        kernels.rms_norm(x, gain, 1e-5)
        kernels.silu_and_multiply(x)
        kernels.rotary(x.view(rows, 4, 28), cos, sin)

    made = new_binaries(stub, lambda: [call(rows) for rows in ROWS])
    assert Counter(binary.name for binary in made) == {
        "linear_kernel": len(kernels.tiles[torch.bfloat16]), "add_and_norm_kernel": 1, "silu_and_multiply_kernel": 1,
        "rotary_kernel": 1,
    }  # fmt: skip


@pytest.mark.usefixtures("dispatched")
def test_one_binary_serves_all_ranks_of_adapters(stub):
    from lowrank_checks import adapters_of

    kernels = CudaKernels()
    packed = {name: kernels.pack_adapter(w) for name, w in adapters_of(torch.bfloat16, "abc", 136, 90).items()}

    def call(rows, name):
        x, out = torch.zeros(rows, 136).bfloat16(), torch.zeros(rows, 96).bfloat16()
        kernels.add_low_rank("p", x, out, [Segment(0, rows, packed[name])])

    made = new_binaries(stub, lambda: [call(rows, name) for rows in ROWS for name in "abc"])
    counts = Counter(binary.name for binary in made)
    assert set(counts) <= {"down_kernel", "up_kernel"}
    assert max(counts.values()) == 1, counts


def run_engine(model):
    """Chunked prompts, trees and single rows, in batches of many sizes."""
    options = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": EVERYWHERE}}
    options |= {"device": "cuda", "dtype": "bfloat16", "max_num_batched_tokens": 48}
    requests = varied_requests(6)
    tokens = run_requests(make_engine(model, **options).engine, requests).tokens()
    drafter = NoisyDrafter(tokens, p=0.7, max_width=6, vocab_size=TOY_VOCAB)
    run_requests(make_engine(model, drafter, **options).engine, requests)


def test_no_step_of_an_engine_would_need_another_binary_than_the_first_launches(stub, toy_model, monkeypatch):
    """Of every launch for itself: another one's binary would not be the one that it launches."""

    def dispatch(launch, x, y, *arguments):
        before = launch.compiled
        launch.first(x, y, arguments)
        assert before is None or launch.compiled is before, launch.kernel

    direct = new_binaries(stub, lambda: run_engine(toy_model))
    monkeypatch.setattr(Launch, "__call__", dispatch)
    assert new_binaries(stub, lambda: run_engine(toy_model)) == []
    assert {binary.name for binary in direct} <= KERNELS
    assert set(stub.launches) >= KERNELS


def test_a_layer_takes_ten_launches(stub, toy_model):
    options = {"extra": {"hybrid_attn": hybrid_plugin()}, "plugin_options": {"hybrid_attn": EVERYWHERE}}
    engine = make_engine(toy_model, device="cuda", dtype="bfloat16", graphs="none", **options).engine
    for request in varied_requests(3):
        engine.check(request)
        engine.add(request)
    engine.step()
    engine.step()
    stub.launches.clear()
    engine.step()
    layers = 2
    assert stub.launches.pop("sample_kernel") == 1, "all sampled rows together"
    assert stub.launches == {
        "linear_kernel": 4 * layers + 1, "add_and_norm_kernel": 2 * layers + 1, "rotate_and_write_kernel": layers,
        "silu_and_multiply_kernel": layers, "attend_kernel": layers, "merge_kernel": layers,
    }  # fmt: skip


def launch_wide(stub, dtype):
    """The shapes of an 8B model, in all tiles; heads of 128 in groups of 4. Nothing is computed."""
    from paged_backends import backend_of
    from paged_cases import Shape, World, attend

    from specserve_cuda.attention.paged_kernels import TritonPaged

    twins, stub.twins = stub.twins, {}
    weight = torch.zeros(4096, 4096, dtype=dtype)
    linear = CudaKernels().prepare_linear(weight, None)
    for rows in (1, 17, 65, 513):
        linear(torch.zeros(rows, 4096, dtype=dtype))
    world = World(Shape(16, 32, 8, 128, dtype=dtype), "cpu")
    spans = world.chains()
    attend(backend_of(world, TritonPaged), world, spans, 0, *world.rows(sum(span.length for span in spans)))
    stub.twins = twins


def test_nothing_spills_and_nothing_sums_in_an_order_that_is_not_fixed(stub):
    """Over the binaries of the tests before this one, too."""
    launch_wide(stub, torch.bfloat16)
    names = Counter(binary.name for binary in stub.binaries)
    assert names["linear_kernel"] >= 4, names
    for binary in stub.binaries:
        registers, stack = binary.resources()
        assert stack == 0, (binary.name, registers, stack)
        assert not re.search(r"\b(atom|red)\.", binary.ptx), binary.name


def test_the_table_of_speeds_runs(monkeypatch, toy_model):
    """`python -m benchmarks gpu`, small; the times are none."""
    from benchmarks.cases import gpu
    from benchmarks.lib.report import Options, render

    small = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 320, "head_dim": 16}
    config = gpu.CONFIG_8B | small | {"num_attention_heads": 4, "num_key_value_heads": 2}
    values = {"CONFIG_8B": config, "COUNTS": (3,), "PROMPT_LEN": 20, "NUM_TOKENS": 6, "DEVICE": "cpu"}
    for name, value in values.items():
        monkeypatch.setattr(gpu, name, value)
    monkeypatch.setattr(gpu, "copy_speed", lambda: 1e12)
    monkeypatch.setattr(gpu, "MODEL_DIR", toy_model)
    table = render("gpu", gpu.run(Options(1, False, False, ())))
    for what in ("demo, 3", "8B, 3", "drafts", "lora", "transformers"):
        assert what in table, table


def test_the_probe_of_tiles_runs(monkeypatch):
    """`python -m benchmarks tiles`, small; the times are none."""
    import triton
    from benchmarks.cases import tiles
    from benchmarks.lib.report import Options, render

    for name, value in {"SHAPES": ((96, 64),), "ROW_COUNTS": (1, 65), "CACHE_BYTES": 1, "COPY_BYTES": 64}.items():
        monkeypatch.setattr(tiles, name, value)
    monkeypatch.setattr(triton.testing, "do_bench", lambda action, **_: 1.0 + 0.0 * len(str(action())))
    table = render("tiles", tiles.run(Options(1, False, False, ())))
    assert "96 x 64, 65 rows" in table
    assert "met: tiles in use whose bits are those of the first" in table, "torch computes all tiles alike"
