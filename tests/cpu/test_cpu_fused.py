"""The fused layers have the bits of the pieces called one by one, and support all that the pieces do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from native_cases import SETS, WHOLE_SETS, each_set

from covering import covering
from specserve.models.mlp import MixtureOfExperts
from specserve.models.tiled import TiledPass
from specserve_cpu.fused import FusedPass
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import Run, accepted, assert_lossless, make_engine, run, run_requests
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.engine.assembly import Assembled
    from specserve.engine.engine import Engine

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama-biases": {"attention_bias": True, "mlp_bias": True},
    "mistral-window": {"sliding_window": 16},
    "qwen2-tied": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 64, "num_key_value_heads": 1},
    "gemma2": {"sliding_window": 16},
    "gemma3_text": {"final_logit_softcapping": 3.0},
    "granite": {},
    "olmo2": {},
    "smollm3": {},
    "mixtral": {"num_local_experts": 7},
    "qwen3_moe-plain-layer": {"num_hidden_layers": 3, "mlp_only_layers": [1], "num_experts_per_tok": 4},
    "granitemoe": {},
    "gpt_oss": {},
    "lfm2_moe-plain-layer": {
        "num_hidden_layers": 3,
        "layer_types": ["conv", "full_attention", "conv"],
        "routed_scaling_factor": 1.7,
    },
}


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    name: str = request.param
    return write_checkpoint(tmp_path_factory.mktemp(name), architecture=name.split("-")[0], **MODELS[name])


def options(isa: str, **more: Any) -> dict[str, Any]:
    return {"plugins": ("cpu",), "plugin_options": {"cpu": {"instruction_set": isa}}, **more}


def passes(assembled: Assembled) -> object:
    return assembled.engine.runner.passes


def in_pieces(engine: Engine) -> Engine:
    runner = engine.runner
    runner.passes = TiledPass(runner.model, runner.attention, runner.model.kernels.row_tile)
    return engine


def same_decisions(a: Run, b: Run) -> bool:
    """Log-probabilities too: they show every bit of the logits that decided."""
    assert a.decided().keys() == b.decided().keys()
    return all(a.decided()[name] == b.decided()[name] for name in a.decided())


@covering(
    ("model", "dtype"), ("isa", "dtype"),
    model=MODELS, isa=WHOLE_SETS, dtype=["float32", "bfloat16"], indirect=["model"],
)  # fmt: skip
def test_fused_layers_have_the_bits_of_the_pieces(model: Path, isa: str, dtype: str) -> None:
    requests = varied_requests(6)
    fused, other = (make_engine(model, **options(isa, dtype=dtype, threads=n)) for n in (2, 1))
    assert isinstance(passes(fused), FusedPass)
    pieces = in_pieces(other.engine)
    assert same_decisions(run_requests(fused.engine, requests), run_requests(pieces, requests))


@each_set
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_draft_trees_are_lossless(toy_model: Path, isa: str, dtype: str) -> None:
    served = assert_lossless(
        toy_model,
        varied_requests(6),
        lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=12, vocab_size=TOY_VOCAB),
        **options(isa, dtype=dtype),
    )
    right, drafted = accepted(served)
    assert 0.2 * drafted < right < drafted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_and_block_size_do_not_change_the_bits(toy_model: Path, dtype: str) -> None:
    requests = varied_requests(8)
    plain = run(toy_model, requests, **options(SETS[0], dtype=dtype))
    for more in ({"threads": 2}, {"block_size": 1}, {"block_size": 64, "threads": 2}, {"max_num_seqs": 2}):
        assert same_decisions(plain, run(toy_model, requests, **options(SETS[0], dtype=dtype, **more)))


def test_an_intermediate_size_that_is_no_multiple_of_16_is_served_in_pieces(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, intermediate_size=200)
    engine = make_engine(path, **options(SETS[0]))
    assert isinstance(passes(engine), TiledPass)
    assert run_requests(engine.engine, varied_requests(3)).tokens()


def test_experts_whose_sum_is_a_part_of_several_processes_are_called_in_pieces(tmp_path: Path) -> None:
    engine = make_engine(write_checkpoint(tmp_path, architecture="qwen3_moe"), **options(SETS[0]))
    pass_ = passes(engine)
    assert isinstance(pass_, FusedPass)
    model, attention = pass_.model, engine.engine.parts.runner.attention  # type: ignore[attr-defined]
    first, last = model.layers
    assert isinstance(last.mlp, MixtureOfExperts)
    model.layers = (first, replace(last, mlp=replace(last.mlp, combine=lambda total: total)))
    assert model.kernels.fuse(model, attention) is None
