"""Models whose maps are kept in few bits, in forms that differ within a layer and within a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from coded_checkpoints import MIXED, CodedWeights, format_plugin, write_coded
from coded_forms import FORMS
from native_cases import SETS
from test_cpu_fused import in_pieces, passes, same_decisions

from covering import covering
from specserve_cpu.coded import CodedLinear
from specserve_cpu.fused import FusedPass, SplitPass
from specserve_workbench.testing.drafters import NoisyDrafter
from specserve_workbench.testing.engines import (
    accepted,
    assert_lossless,
    make_engine,
    run,
    run_requests,
    verify_everything,
)
from specserve_workbench.testing.requests import TOY_VOCAB, varied_requests
from specserve_workbench.testing.toy import FAMILIES, write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from specserve.engine.assembly import Assembled

METHOD = CodedWeights(MIXED)
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2-tied": {"tie_word_embeddings": True},
    "gemma2": {"sliding_window": 16},
    "granite": {},
    "qwen3_moe": {},
}
INPUTS = ["auto", "float"]
each_inputs = pytest.mark.parametrize("activations", INPUTS)


@pytest.fixture(scope="module")
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, name = tmp_path_factory.mktemp(request.param), request.param
    return write_coded(
        write_checkpoint(path / "source", architecture=name.split("-")[0], **MODELS[name]), path / "coded"
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    return write_coded(write_checkpoint(path / "source"), path / "coded")


def options(activations: str, isa: str = SETS[0], **more: Any) -> dict[str, Any]:
    cpu = {"activations": activations, "instruction_set": isa}
    return {"plugins": ("cpu",), "plugin_options": {"cpu": cpu}, "extra": format_plugin(METHOD), **more}


def num_coded(assembled: Assembled) -> int:
    return sum(isinstance(p.packed, CodedLinear) for p in assembled.engine.runner.model.projections.values())


@covering(
    ("model", "activations", "dtype"), ("isa", "activations", "dtype"),
    model=MODELS, isa=SETS, activations=INPUTS, dtype=["float32", "bfloat16"], indirect=["model"],
)  # fmt: skip
def test_fused_layers_have_the_bits_of_the_pieces(model: Path, isa: str, activations: str, dtype: str) -> None:
    requests = varied_requests(6)
    fused, other = (make_engine(model, **options(activations, isa, dtype=dtype, threads=n)) for n in (2, 1))
    assert isinstance(passes(fused), FusedPass)
    assert num_coded(fused) >= 7
    pieces = in_pieces(other.engine)
    assert same_decisions(run_requests(fused.engine, requests), run_requests(pieces, requests))


@each_inputs
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_layers_around_another_attention_have_the_bits_of_the_pieces(llama: Path, activations: str, dtype: str) -> None:
    requests = varied_requests(6)
    split, other = (make_engine(llama, **options(activations, dtype=dtype, attention="sdpa")) for _ in range(2))
    assert isinstance(passes(split), SplitPass)
    pieces = in_pieces(other.engine)
    assert same_decisions(run_requests(split.engine, requests), run_requests(pieces, requests))


@covering(("isa", "activations"), model=MODELS, isa=SETS, activations=INPUTS, indirect=["model"])
def test_chains_and_trees_are_lossless(model: Path, isa: str, activations: str) -> None:
    served = assert_lossless(
        model,
        varied_requests(8),
        lambda outputs: NoisyDrafter(outputs, p=0.7, max_width=12, vocab_size=TOY_VOCAB),
        **options(activations, isa, dtype="bfloat16"),
    )
    right, drafted = accepted(served)
    assert 0.2 * drafted < right < drafted


@each_inputs
@pytest.mark.parametrize("more", [
    {"threads": 3, "max_num_batched_tokens": 24}, {"block_size": 1, "max_num_seqs": 2}, {"prefix_cache": False},
], ids=str)  # fmt: skip
def test_batches_threads_and_chunks_change_no_bit(llama: Path, activations: str, more: dict[str, Any]) -> None:
    requests = varied_requests(12, seed=1)
    plain = run(llama, requests, **options(activations))
    assert run(llama, requests, **(options(activations) | more)).decided() == plain.decided()


@pytest.mark.parametrize("family", ["narrow-heads", "groups-of-three"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_widths_of_no_multiple_of_a_panel_are_served(tmp_path: Path, family: str, dtype: str) -> None:
    """Queries, keys and values that meet within a panel become one form; a width may be odd, also in bfloat16."""
    path = write_coded(write_checkpoint(tmp_path / "source", **FAMILIES[family]), tmp_path / "coded")
    method = CodedWeights(dict.fromkeys(MIXED, FORMS["4 bits"]) | {"v_proj": FORMS["6 bits, signed steps"]})
    config = {"plugins": ("cpu", "ngram"), "extra": format_plugin(method), "dtype": dtype}
    assembled = make_engine(path, **config)
    assert num_coded(assembled) == 2 * 4 + 1
    engine, requests = verify_everything(assembled.engine), varied_requests(8)
    together = run_requests(engine, requests).decided()
    assert engine.metrics.num_draft_tokens > 0
    for request in requests[:4]:
        alone = run(path, [request], **(config | {"plugins": ("cpu",)})).decided()
        assert alone[request.request_id] == together[request.request_id]
