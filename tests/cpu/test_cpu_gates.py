"""Gates of attention, one for each head or each number, in native layers: near float64, with the bits of the pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from fused_checks import (
    assert_adapters_have_the_bits_of_the_pieces,
    assert_draft_trees_are_lossless,
    assert_the_bits_of_the_pieces,
    options,
)
from native_cases import SETS, U_SUM, U, assert_near, each_dtype, each_set, make_unusual, randn, same_bits
from test_cpu_rowwise import kernels

from covering import covering
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    import torch

ONLY_ATTENTION = ["full_attention", "full_attention"]
MODELS: dict[str, dict[str, Any]] = {
    "of numbers": {"architecture": "qwen3_5_text", "layer_types": ONLY_ATTENTION},
    "of numbers, with biases": {
        "architecture": "qwen3_5_text",
        "layer_types": ONLY_ATTENTION,
        "attention_bias": True,
        "num_key_value_heads": 1,
        "head_dim": 40,
    },
    "of heads": {"architecture": "lfm3"},
    "of heads, norms before": {
        "architecture": "lfm3",
        "use_sandwich_norm": False,
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "conv", "sliding_attention"],
    },
}


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("gates"), **MODELS[request.param])


each_model = pytest.mark.parametrize("model", MODELS, indirect=True)
a_model_of_each = pytest.mark.parametrize("model", ["of numbers", "of heads"], indirect=True)


@each_set
@each_dtype
@pytest.mark.parametrize(("heads", "width"), [(50, 1), (5, 40), (19, 7), (1, 16)])
def test_the_gated_numbers_are_near_float64(isa: str, dtype: torch.dtype, heads: int, width: int) -> None:
    x, gates = randn(6, heads * width, dtype=dtype), randn(6, heads, dtype=dtype, seed=1, scale=4)
    exact = x.double().view(6, heads, width) * gates.double().sigmoid()[..., None]
    got = kernels(isa, dtype).gate(x, gates)
    assert_near(got, exact.flatten(1), (8 * U_SUM + U[dtype]) * exact.flatten(1).abs(), dtype)


@each_set
@each_dtype
def test_a_gated_row_has_its_bits_among_any_others(isa: str, dtype: torch.dtype) -> None:
    for heads, width in ((70, 1), (3, 20)):
        x = make_unusual(randn(5, heads * width, dtype=dtype), 1)
        gates = make_unusual(randn(5, 2 * heads, dtype=dtype, scale=30), 2)[:, :heads]
        among = kernels(isa, dtype, threads=2).gate(x, gates)
        for row in range(5):
            assert same_bits(among[row], kernels(isa, dtype).gate(x[row : row + 1], gates[row : row + 1])[0])


@covering(("model", "dtype"), ("isa", "dtype"),
    model=MODELS, isa=[s for s in SETS if "vnni" not in s], dtype=["float32", "bfloat16"], indirect=["model"],
)  # fmt: skip
def test_fused_layers_with_gates_have_the_bits_of_the_pieces(model: Path, isa: str, dtype: str) -> None:
    both = (options(isa, dtype=dtype, threads=n) for n in (2, 1))
    assert_the_bits_of_the_pieces(model, FusedPass, 4, *both)


@each_model
def test_gated_layers_around_another_backend_have_the_bits_of_their_pieces(model: Path) -> None:
    assert_the_bits_of_the_pieces(model, SplitPass, 3, options(dtype="bfloat16", attention="sdpa"))


@pytest.mark.parametrize(("model", "weights"), [("of numbers", "int4"), ("of heads", "int8-g64")], indirect=["model"])
def test_gated_layers_of_few_bits_have_the_bits_of_their_pieces(model: Path, weights: str) -> None:
    assert_the_bits_of_the_pieces(model, FusedPass, 3, options(dtype="bfloat16", cpu={"weights": weights}))


@pytest.mark.parametrize(
    ("model", "dtype"), [("of numbers", "bfloat16"), ("of heads, norms before", "float32")], indirect=["model"]
)
def test_draft_trees_of_gated_models_are_lossless(model: Path, dtype: str) -> None:
    assert_draft_trees_are_lossless(model, 4, dtype=dtype)


@a_model_of_each
@pytest.mark.parametrize("attention", ["auto", "sdpa"])
def test_adapters_of_gated_layers_have_the_bits_of_the_pieces(model: Path, attention: str) -> None:
    assert_adapters_have_the_bits_of_the_pieces(model, attention, "bfloat16")
