"""The plugin in an engine: when it serves, when torch serves instead, and what the banner says."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

import pytest
import torch
from native_cases import SETS, each_linear_set

from specserve.attention.fitting import best_fit, misfits
from specserve.attention.sdpa import SdpaFactory
from specserve.config import EngineConfig
from specserve.errors import ConfigError
from specserve.plugins.host import PluginHost
from specserve.protocols import PHASES, AttentionNeeds
from specserve_cpu.attention import PagedFactory
from specserve_server.cli import main
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import toy_request, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = toy_request("a", range(20), max_tokens=8, ignore_eos=True)


def kernels_of(model: Path, **options: Any) -> str:
    return make_engine(model, **options).engine.runner.model.kernels.name


def test_the_plugin_serves_unless_it_is_switched_off(toy_model: Path) -> None:
    assert kernels_of(toy_model, default_plugins=True) == f"cpu-{SETS[0]}"
    assert kernels_of(toy_model, plugins=("cpu",)) == f"cpu-{SETS[0]}"
    assert kernels_of(toy_model, default_plugins=True, no_plugins=("cpu",)) == "torch"
    assert kernels_of(toy_model, default_plugins=False) == "torch"


@each_linear_set
def test_an_instruction_set_may_be_chosen(toy_model: Path, isa: str) -> None:
    engine = make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"instruction_set": isa}}).engine
    assert engine.runner.model.kernels.name == f"cpu-{isa}"
    assert engine.runner.attention.name == "cpu_paged"
    assert len(run_requests(engine, [REQUEST]).tokens()["a"]) == 8


def test_an_unsupported_instruction_set_is_refused_with_the_supported_ones(toy_model: Path) -> None:
    with pytest.raises(ConfigError, match=rf"cpu.instruction_set: sse .*allowed are auto, {', '.join(SETS)}"):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"instruction_set": "sse"}})


def test_an_instruction_set_of_another_architecture_is_refused_as_such(toy_model: Path) -> None:
    is_arm = platform.machine() in ("aarch64", "arm64")
    foreign, machines = ("avx2", "x86_64 or AMD64") if is_arm else ("neon_dot", "aarch64 or arm64")
    with pytest.raises(ConfigError, match=f"{foreign} is for processors of {machines}, and this one is "):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"instruction_set": foreign}})


def test_an_unknown_option_is_refused_with_the_known_ones(toy_model: Path) -> None:
    with pytest.raises(ConfigError, match="instruction_set"):
        make_engine(toy_model, plugins=("cpu",), plugin_options={"cpu": {"instruction_sets": "avx2"}})


def test_in_float16_torch_serves(toy_model: Path) -> None:
    engine = make_engine(toy_model, default_plugins=True, dtype="float16").engine
    assert engine.runner.model.kernels.name == "torch"
    assert engine.runner.attention.name == "sdpa"
    assert len(run_requests(engine, [REQUEST]).tokens()["a"]) == 8


def test_the_banner_says_why_torch_serves_in_float16() -> None:
    host = PluginHost.start(EngineConfig(model="demo", device="cpu", dtype="float16"))
    assert any("computes in bfloat16 and float32, not in float16" in line for line in host.banner()), host.banner()


def test_the_banner_names_the_instruction_set_that_serves(toy_model: Path) -> None:
    description = make_engine(toy_model, default_plugins=True).description
    assert description["kernels"] == f"cpu-{SETS[0]} (cpu)"
    assert description["attention"] == "cpu_paged (cpu)"


def test_the_banner_says_why_torch_serves_a_float16_checkpoint(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, dtype="float16")
    assembled = make_engine(path, default_plugins=True)
    assert assembled.description["kernels"] == "torch (builtin; cpu has none for float16 on cpu)"
    assert len(run_requests(assembled.engine, [REQUEST]).tokens()["a"]) == 8


def test_the_tokens_are_those_of_torch(toy_model: Path) -> None:
    requests = varied_requests(6)
    assert run(toy_model, requests, plugins=("cpu",)).tokens() == run(toy_model, requests).tokens()


def test_torch_has_one_thread_beside_the_native_pool(toy_model: Path) -> None:
    torch.set_num_threads(2)
    engine = make_engine(toy_model, plugins=("cpu",), threads=2).engine
    assert torch.get_num_threads() == 1
    assert len(run_requests(engine, [REQUEST]).tokens()["a"]) == 8


def test_explain_answers_for_the_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plugins", "explain", "cpu", "ngram"])
    assert "cpu works with ngram" in capsys.readouterr().out
    main(["plugins", "list"])
    assert "kernel.cpu" in capsys.readouterr().out


def test_sdpa_serves_an_odd_head_dim_in_bfloat16() -> None:
    common: dict[str, Any] = {"device": "cpu", "block_size": 16, "graphs": "none", "drafts": False, "trees": False}
    odd = AttentionNeeds(dtype="bfloat16", head_dim=33, head_bytes=66, **common)
    paged, sdpa = PagedFactory(None), SdpaFactory()
    assert misfits(paged.capabilities, odd) == ["the model's heads of 66 bytes are no multiple of its 4"]
    assert best_fit({"cpu_paged": paged, "sdpa": sdpa}, odd, PHASES) is sdpa
    even = AttentionNeeds(dtype="bfloat16", head_dim=34, head_bytes=68, **common)
    assert best_fit({"cpu_paged": paged, "sdpa": sdpa}, even, PHASES) is paged
