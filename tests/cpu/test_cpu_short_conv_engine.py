"""Models with short convolutions in native layers: the bits of the pieces; no draft and no neighbour changes one."""

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
from native_cases import DTYPES, WHOLE_SETS, each_dtype
from test_cpu_fused import same_decisions

from covering import pairwise
from specserve.models.short_conv import ShortConv
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_workbench.testing.engines import make_engine, run, run_requests
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    from torch import Tensor

MODELS: dict[str, dict[str, Any]] = {
    "lfm2": {},
    "three taps, two layers of either": {"num_hidden_layers": 4, "full_attn_idxs": [0, 2]},
    "seven taps with biases": {"conv_L_cache": 7, "conv_bias": True},
    "an odd width": {"hidden_size": 36, "head_dim": 32},
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("lfm2"), architecture="lfm2", **MODELS[request.param])


@pytest.fixture(scope="module")
def lfm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("lfm2"), architecture="lfm2")


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).partition(".")[2]


@pairwise(model=MODELS, isa=WHOLE_SETS, dtype=DTYPES, indirect=["model"])
def test_fused_layers_have_the_bits_of_the_pieces(model: Path, isa: str, dtype: torch.dtype) -> None:
    both = (options(isa, dtype=name_of(dtype), threads=n) for n in (2, 1))
    assert_the_bits_of_the_pieces(model, FusedPass, 6, *both)


@each_dtype
def test_layers_around_another_backend_have_the_bits_of_their_pieces(model: Path, dtype: torch.dtype) -> None:
    assert_the_bits_of_the_pieces(model, SplitPass, 4, options(dtype=name_of(dtype), attention="sdpa"))


@each_dtype
@pytest.mark.parametrize("kind", ["plain", "int8", "int4", "kv int8"])
def test_draft_trees_are_lossless(lfm2: Path, dtype: torch.dtype, kind: str) -> None:
    cpu = {"plain": {}, "int8": {"weights": "int8"}, "int4": {"weights": "int4"}, "kv int8": {"kv": "int8"}}[kind]
    assert_draft_trees_are_lossless(lfm2, 6, dtype=name_of(dtype), cpu=cpu)


@pytest.mark.parametrize("weights", ["int8", "int8-g64", "int4"])
def test_weights_of_few_bits_have_the_bits_of_their_pieces(lfm2: Path, weights: str) -> None:
    assert_the_bits_of_the_pieces(lfm2, FusedPass, 4, options(dtype="bfloat16", cpu={"weights": weights}))


@each_dtype
@pytest.mark.parametrize("attention", ["auto", "sdpa"])
def test_adapters_of_both_maps_have_the_bits_of_the_pieces(lfm2: Path, dtype: torch.dtype, attention: str) -> None:
    assert_adapters_have_the_bits_of_the_pieces(lfm2, attention, name_of(dtype))


@each_dtype
def test_chunks_threads_block_sizes_and_neighbours_do_not_change_the_bits(lfm2: Path, dtype: torch.dtype) -> None:
    requests = varied_requests(8)
    plain = run(lfm2, requests, **options(dtype=name_of(dtype)))
    others: tuple[dict[str, Any], ...] = (
        {"threads": 2, "block_size": 1},
        {"max_num_batched_tokens": 7},
        {"block_size": 64, "threads": 2, "max_num_seqs": 2},
    )
    for more in others:
        assert same_decisions(plain, run(lfm2, requests, **options(dtype=name_of(dtype), **more))), more


def test_what_a_request_left_in_its_slots_does_not_reach_the_next(lfm2: Path) -> None:
    engine, other = (make_engine(lfm2, **options(dtype="bfloat16", prefix_cache=False)).engine for _ in range(2))
    requests = varied_requests(4)
    for states in engine.runner.model.token_states:
        states.fill_(float("nan"))
    assert same_decisions(run_requests(engine, requests), run_requests(other, requests))


def test_other_mixers_are_called_in_pieces(lfm2: Path) -> None:
    class Doubled(ShortConv):
        def mix(self, rows: Tensor, kept: Tensor, tokens: Any) -> Tensor:
            return 2 * super().mix(rows, kept, tokens)

    engine = make_engine(lfm2, **options())
    model, attention = engine.engine.runner.model, engine.engine.runner.attention
    assert model.kernels.fuse(model, attention) is not None
    mixer = model.layers[0].mixer
    assert isinstance(mixer, ShortConv)
    model.layers = (replace(model.layers[0], mixer=Doubled(mixer.weight, mixer.bias)), *model.layers[1:])
    assert model.kernels.fuse(model, attention) is None
