"""An embedding that is kept quantised: the tokens' vectors are those of the same numbers in a dense checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from coded_checkpoints import MIXED, CodedWeights, format_plugin, formats, write_coded, write_dense
from coded_forms import FORMS, Form, Numbers

from covering import covering
from specserve.kernels.torch_kernels import TorchKernels
from specserve.models.loader import ModelLoader, load_model
from specserve.protocols.quantised import PackedRows
from specserve_cpu._native import Machine, instruction_sets
from specserve_cpu.kernels import CpuKernels
from specserve_tensor_parallel.part import RankPart
from specserve_workbench.testing.engines import run
from specserve_workbench.testing.requests import varied_requests
from specserve_workbench.testing.toy import write_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from specserve.models.decoder import DecoderModel
    from specserve.models.part import ModelPart

EMBEDDINGS: dict[str, Form] = {
    "6 bits": FORMS["6 bits, signed steps"],
    "4 bits, table": FORMS["4 bits, table"],
    "8 bits": Form(None, 32, Numbers(torch.float16)),
    "groups that no kernel has": Form(tuple(range(16)), 24, Numbers(torch.float16), Numbers(torch.float16)),
}
KERNELS = ("torch", "cpu")
each_form = covering(("embedding", "tied", "kernels"), embedding=EMBEDDINGS, tied=[False, True], kernels=KERNELS)
IDS = torch.tensor([0, 319, 7, 7, 160, 159, 161])


class Written(NamedTuple):
    method: CodedWeights
    coded: Path
    dense: Path


def written(tmp_path: Path, embedding: str, **config: Any) -> Written:
    method = CodedWeights(MIXED | {"embed_tokens": EMBEDDINGS[embedding]})
    source = write_checkpoint(tmp_path / "source", **config)
    return Written(method, write_coded(source, tmp_path / "coded"), write_dense(source, tmp_path / "dense", method))


def kernels_of(name: str, dtype: str = "float32") -> Any:
    return TorchKernels() if name == "torch" else CpuKernels(Machine(instruction_sets()[0], 1), dtype)


def loaded(made: Written, kernels: str, dtype: str = "float32", part: ModelPart | None = None) -> DecoderModel:
    loader = ModelLoader(formats=formats(made.method), **({} if part is None else {"part": part}))
    model = loader.load_decoder(
        made.coded, kernels=kernels_of(kernels, dtype), dtype=dtype, device="cpu", max_model_len=None
    )
    for projection in model.projections.values():
        projection.finalize(model.kernels)
    return model


def vectors(made: Written, dtype: str = "float32") -> Tensor:
    return load_model(made.dense, kernels=TorchKernels(), dtype=dtype).embedding


@covering(
    ("embedding", "kernels", "dtype"), ("embedding", "tied"), ("tied", "kernels"), ("tied", "dtype"),
    embedding=EMBEDDINGS, tied=[False, True], kernels=KERNELS, dtype=["float32", "bfloat16"],
)  # fmt: skip
def test_the_vectors_are_those_of_the_dense_checkpoint(
    tmp_path: Path, embedding: str, tied: bool, kernels: str, dtype: str
) -> None:
    made = written(tmp_path, embedding, tie_word_embeddings=tied)
    model, expected = loaded(made, kernels, dtype), vectors(made, dtype)
    assert model.dtype == expected.dtype
    assert torch.equal(model.embed(IDS), expected[IDS])
    assert torch.equal(model.embedding, expected)
    assert torch.equal(model.whole_embedding(), expected)


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_packed_vectors_are_in_memory_once(tmp_path: Path, tied: bool) -> None:
    model = loaded(written(tmp_path, "6 bits", tie_word_embeddings=tied), "cpu")
    kept: Any = model._embedding
    assert (kept is model.lm_head) is tied
    assert isinstance(kept.packed, PackedRows)
    assert kept.weight.numel() == model.lm_head.weight.numel() == 0


@each_form
def test_all_that_is_generated_is_what_the_dense_checkpoint_gives(
    tmp_path: Path, embedding: str, tied: bool, kernels: str
) -> None:
    """To the last bit, where inputs are not rounded: the native kernels multiply the same float32 numbers."""
    made = written(tmp_path, embedding, tie_word_embeddings=tied)
    of_kernels: dict[str, Any] = {"dtype": "float32"}
    if kernels == "cpu":
        of_kernels |= {"plugins": ("cpu",), "plugin_options": {"cpu": {"activations": "float"}}}
    requests = varied_requests(8)
    coded = run(made.coded, requests, extra=format_plugin(made.method), **of_kernels)
    dense = run(made.dense, requests, **of_kernels)
    if kernels == "cpu" and embedding == "8 bits" and tied:  # the head's 8-bit kernel scales sums, not weights
        assert coded.tokens() == dense.tokens()
    else:
        assert coded.decided() == dense.decided()
    assert sum(map(len, coded.tokens().values())) > 40


class Gathered:
    """What all ranks found."""

    def __init__(self, found: list[Tensor]) -> None:
        self.found = found

    def gather(self, own: Tensor) -> list[Tensor]:
        assert any(torch.equal(own, each) for each in self.found)
        return self.found


@each_form
def test_a_rank_has_the_vectors_of_its_tokens_and_reads_the_others_again(
    tmp_path: Path, embedding: str, tied: bool, kernels: str
) -> None:
    made = written(tmp_path, embedding, tie_word_embeddings=tied)
    expected, parts = vectors(made), [RankPart(rank, 2, 1.0) for rank in range(2)]
    models = [loaded(made, kernels, part=part) for part in parts]
    shares = parts[0].shares.vocabulary
    clamped = [(IDS - own.start).clamp(0, own.stop - own.start - 1) for own in shares]
    found = [model.embedding_rows(ids) for model, ids in zip(models, clamped, strict=True)]
    for model, part, own in zip(models, parts, shares, strict=True):
        part.group_or_none = Gathered(found)  # type: ignore[assignment]
        assert torch.equal(model.embedding, expected[own])
        assert torch.equal(model.embed(IDS), expected[IDS])
        assert torch.equal(model.whole_embedding(), expected)
