"""Losslessness under adapters of experts: drafts, chunks, threads and neighbours change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from expert_adapters import MODELS, write_model, write_per_expert, write_stacked
from test_lora_lossless import assert_lossless, spread

from covering import covering
from specserve_workbench.testing import engines
from specserve_workbench.testing.engines import run_requests, verify_everything
from specserve_workbench.testing.requests import toy_request, varied_requests
from toy_adapters import lora_engine, under

if TYPE_CHECKING:
    from pathlib import Path

KERNELS, DTYPES = ["torch", "cpu"], ["float32", "bfloat16"]


def adapters_of(path: Path, model: Path) -> dict[str, Path]:
    """Of experts one by one and the router, and of experts as parameters."""
    return {
        "modules": write_per_expert(path / "modules", model, rank=5, seed=1),
        "parameters": write_stacked(path / "parameters", model, rank=3, seed=2),
    }


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def qwen3_moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("qwen3_moe"), "qwen3_moe")


@pytest.mark.usefixtures("each_kernel_set")
@covering(
    ("each_kernel_set", "dtype"),
    model=MODELS, each_kernel_set=KERNELS, dtype=DTYPES, indirect=["model", "each_kernel_set"],
)  # fmt: skip
def test_noisy_drafts_change_nothing(model, tmp_path, dtype):
    assert_lossless(model, adapters_of(tmp_path, model), varied_requests(12), dtype=dtype)


@pytest.mark.usefixtures("each_kernel_set")
@covering(indirect=["each_kernel_set"], each_kernel_set=KERNELS, options=[
    {"max_num_batched_tokens": 24},
    {"kv_memory": "600K"},
    {"threads": 2, "block_size": 1},
])  # fmt: skip
def test_noisy_drafts_change_nothing_in_small_chunks_and_after_preemption(qwen3_moe, tmp_path, options):
    run = assert_lossless(qwen3_moe, adapters_of(tmp_path, qwen3_moe), varied_requests(24, seed=3), **options)
    assert bool(run.metrics.num_preemptions) == ("kv_memory" in options)


@pytest.mark.usefixtures("each_kernel_set")
@covering(each_kernel_set=KERNELS, dtype=DTYPES, indirect=["each_kernel_set"])
def test_each_request_gets_what_it_gets_alone(qwen3_moe, tmp_path, dtype):
    adapters = adapters_of(tmp_path, qwen3_moe)
    options = {"dtype": dtype, "prefix_cache": False, "max_num_batched_tokens": 60}
    engine, store = lora_engine(qwen3_moe, adapters, **options)
    plain, names = varied_requests(12, seed=6), spread(adapters, 12)
    requests = under(store, plain, names)
    together = run_requests(engine, requests).decided()
    for request in requests:
        assert run_requests(engine, [request]).decided()[request.request_id] == together[request.request_id]
    of_base = engines.run(
        qwen3_moe, [r for r, name in zip(plain, names, strict=True) if name is None], **options
    ).decided()
    assert all(together[name] == alone for name, alone in of_base.items())


@pytest.mark.usefixtures("each_kernel_set")
@covering(model=MODELS, each_kernel_set=KERNELS, indirect=["model", "each_kernel_set"])
def test_adapters_of_experts_change_what_the_model_says(model, tmp_path):
    """Its texts, or the probabilities of the same tokens."""
    adapters = adapters_of(tmp_path, model)
    engine, store = lora_engine(model, adapters)
    requests = [toy_request(str(i), range(3, 20), max_tokens=24, ignore_eos=True, logprobs=1) for i in range(3)]
    said = run_requests(engine, under(store, requests, spread(adapters, 3))).decided()
    assert len({str(each) for each in said.values()}) == 3


@pytest.mark.parametrize("beside", ["ngram", "eagle"])
def test_drafters_beside_adapters_of_experts_change_nothing(qwen3_moe, toy_model, tmp_path, beside):
    adapters = adapters_of(tmp_path, qwen3_moe)
    requests, names = varied_requests(18, seed=5), spread(adapters, 18)
    plain, store = lora_engine(qwen3_moe, adapters)
    expected = run_requests(plain, under(store, requests, names)).decided()
    tables = {"ngram": {"min_survival": 0.01}, "eagle": {"model": str(toy_model)}}
    engine, store = lora_engine(qwen3_moe, adapters, beside=(beside,), plugin_options={beside: tables[beside]})
    requests = under(store, requests, names)
    verify_everything(engine)
    for _ in range(2):  # the second time ngram has seen the answers
        assert run_requests(engine, requests).decided() == expected
    assert engine.metrics.num_draft_tokens > 100
    assert beside == "eagle" or engine.metrics.num_accepted_tokens > 100
    assert not engine.metrics.drafter_faults
