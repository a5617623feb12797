"""Models with gated delta nets in native layers: the bits of the pieces, and no draft and no neighbour changes one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from fused_checks import (
    assert_adapters_have_the_bits_of_the_pieces,
    assert_draft_trees_are_lossless,
    assert_the_bits_of_the_pieces,
    options,
)
from native_cases import WHOLE_SETS, machine
from test_cpu_fused import same_decisions
from test_cpu_gated_delta_net import core_mixer

from covering import covering
from specserve.models.gated_delta_net import GatedDeltaNetConfig
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_cpu.gated_delta_net import DeltaCalls, NativeDeltaNet
from specserve_workbench.testing.engines import make_engine, run
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

MODELS: dict[str, dict[str, Any]] = {
    "qwen3_5": {},
    "two nets of odd sizes": {
        "num_hidden_layers": 3,
        "full_attention_interval": 3,
        "linear_conv_kernel_dim": 2,
        "linear_key_head_dim": 24,
        "linear_value_head_dim": 70,
        "attention_bias": True,
    },
}


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("model"), architecture="qwen3_5_text", **MODELS[request.param])


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("qwen3_5"), architecture="qwen3_5_text")


@covering(("model", "dtype"), ("isa", "dtype"),
    model=MODELS, isa=WHOLE_SETS, dtype=["float32", "bfloat16"], indirect=["model"],
)  # fmt: skip
def test_fused_layers_with_gated_delta_nets_have_the_bits_of_the_pieces(model: Path, isa: str, dtype: str) -> None:
    both = (options(isa, dtype=dtype, threads=n) for n in (2, 1))
    assert_the_bits_of_the_pieces(model, FusedPass, 4, *both)


def test_gated_delta_nets_beside_another_backend_have_the_bits_of_their_pieces(qwen: Path) -> None:
    assert_the_bits_of_the_pieces(qwen, SplitPass, 4, options(dtype="bfloat16", attention="sdpa"))


@pytest.mark.parametrize(
    ("dtype", "cpu"),
    [("float32", {}), ("bfloat16", {}), ("bfloat16", {"weights": "int8"}), ("float32", {"kv": "int8"})],
)
def test_draft_trees_over_fused_states_are_lossless(qwen: Path, dtype: str, cpu: dict[str, str]) -> None:
    assert_draft_trees_are_lossless(qwen, 4, dtype=dtype, threads=2, cpu=cpu)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_nets_with_weights_of_few_bits_have_the_bits_of_their_pieces(qwen: Path, weights: str) -> None:
    assert_the_bits_of_the_pieces(qwen, FusedPass, 3, options(dtype="bfloat16", cpu={"weights": weights}))


@pytest.mark.parametrize("attention", ["auto", "sdpa"])
def test_adapters_of_a_net_s_maps_have_the_bits_of_the_pieces(qwen: Path, attention: str) -> None:
    assert_adapters_have_the_bits_of_the_pieces(qwen, attention, "bfloat16")


def test_chunks_threads_and_neighbours_do_not_change_the_bits_of_fused_nets(qwen: Path) -> None:
    requests = varied_requests(6)
    plain = run(qwen, requests, **options(dtype="bfloat16"))
    others: tuple[dict[str, Any], ...] = (
        {"threads": 2, "block_size": 1, "max_num_seqs": 2},
        {"max_num_batched_tokens": 7},
    )
    for more in others:
        assert same_decisions(plain, run(qwen, requests, **options(dtype="bfloat16", **more))), more


def test_nets_that_other_threads_compute_are_called_in_pieces(qwen: Path) -> None:
    engine = make_engine(qwen, **options(dtype="float32")).engine
    loaded, attention = engine.runner.model, engine.runner.attention
    first, *others = loaded.layers
    assert isinstance(first.mixer, NativeDeltaNet)
    config = loaded.config.mixer(0)
    assert isinstance(config, GatedDeltaNetConfig)
    core, dtype = core_mixer(config), loaded.dtype
    elsewhere = NativeDeltaNet(DeltaCalls(machine("portable")), core, dtype)
    for mixer, served in ((NativeDeltaNet(first.mixer.calls, core, dtype), True), (elsewhere, False)):
        loaded.layers = (replace(first, mixer=mixer), *others)
        assert (loaded.kernels.fuse(loaded, attention) is not None) == served
